//! Rust source as far as the checks need it: words without comments, strings and test code, and the paths they form.
//!
//! No parser of the language. It knows what ends a comment, a string and a block, and that is enough for rules about what is named.

/// A word, or one other character that is not blank; `::` is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub line: usize,
    pub text: String,
}

pub struct Code {
    pub tokens: Vec<Token>,
    /// Names of modules declared under `#[cfg(test)]` that lie in files of their own.
    pub test_modules: Vec<String>,
}

impl Code {
    pub fn new(text: &str) -> Self {
        let all = tokens(&blanked(text));
        let mut code = Code { tokens: Vec::with_capacity(all.len()), test_modules: Vec::new() };
        let mut at = 0;
        while at < all.len() {
            match test_attribute(&all[at..]) {
                Some(len) => {
                    let end = item_end(&all, at + len);
                    code.note_module(&all[at + len..end]);
                    at = end;
                }
                None => {
                    code.tokens.push(all[at].clone());
                    at += 1;
                }
            }
        }
        code
    }

    fn note_module(&mut self, item: &[Token]) {
        if let [.., word, name, end] = item
            && word.text == "mod"
            && end.text == ";"
        {
            self.test_modules.push(name.text.clone());
        }
    }

    /// Every path that is named, `use` trees spread out: (line, `a::b::c`).
    pub fn paths(&self) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let before = paths.len();
            let end = self.path_tree(at, "", &mut paths);
            // A lone word is a path too, but not one with a tree behind it.
            at = if paths.len() > before { end } else { at + 1 };
        }
        paths
    }

    /// A path from `at` on, with trees in braces where it leads to one. Gives where it ends.
    fn path_tree(&self, mut at: usize, prefix: &str, paths: &mut Vec<(usize, String)>) -> usize {
        let Some(first) = self.tokens.get(at).filter(|token| is_word(&token.text)) else { return at };
        let mut path = format!("{prefix}{}", first.text);
        at += 1;
        while self.is(at, "::") {
            if self.is(at + 1, "{") {
                return self.branches(at + 2, &format!("{path}::"), paths);
            }
            let Some(next) = self.tokens.get(at + 1).filter(|token| is_word(&token.text) || token.text == "*") else {
                break;
            };
            path.push_str("::");
            path.push_str(&next.text);
            at += 2;
        }
        paths.push((first.line, path));
        at
    }

    fn branches(&self, mut at: usize, prefix: &str, paths: &mut Vec<(usize, String)>) -> usize {
        while at < self.tokens.len() && !self.is(at, "}") {
            at = self.path_tree(at, prefix, paths).max(at + 1);
            while at < self.tokens.len() && !self.is(at, ",") && !self.is(at, "}") {
                at += 1;
            }
            at += usize::from(self.is(at, ","));
        }
        at + 1
    }

    pub fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text == text)
    }

    /// The lines on which these words follow each other.
    pub fn lines_with<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        let found = move |window: &&[Token]| window.iter().zip(words).all(|(token, word)| token.text == *word);
        self.tokens.windows(words.len()).filter(found).map(|window| window[0].line)
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// `#[cfg(test)]`, or one with `test` among `all(…)`: how many tokens.
fn test_attribute(tokens: &[Token]) -> Option<usize> {
    let starts = ["#", "[", "cfg", "("].iter().zip(tokens).all(|(text, token)| token.text == *text);
    if !starts || tokens.len() < 5 {
        return None;
    }
    let end = tokens.iter().position(|token| token.text == "]")?;
    let condition = &tokens[4..end];
    let says = |text: &str| condition.iter().any(|token| token.text == text);
    (says("test") && !says("not") && !says("any")).then_some(end + 1)
}

/// The end of the item at `at`: a semicolon or the brace that closes its block, whichever is first.
fn item_end(tokens: &[Token], at: usize) -> usize {
    let (mut braces, mut others) = (0, 0);
    for (number, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                // Trees of `use` end with a semicolon behind.
                if braces == 0 && others == 0 && tokens.get(number + 1).is_none_or(|next| next.text != ";") {
                    return number + 1;
                }
            }
            "(" | "[" => others += 1,
            ")" | "]" => others -= 1,
            ";" if braces == 0 && others == 0 => return number + 1,
            // A variant, field or argument ends with the list it is in.
            "," if braces == 0 && others == 0 => return number + 1,
            _ => {}
        }
        if braces < 0 || others < 0 {
            return number;
        }
    }
    tokens.len()
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let mut word = String::from(char);
        match char {
            '\n' => line += 1,
            ' ' | '\t' | '\r' => {}
            ':' if chars.next_if_eq(&':').is_some() => tokens.push(Token { line, text: "::".into() }),
            _ if is_word(&word) => {
                while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || *next == '_') {
                    word.push(next);
                }
                tokens.push(Token { line, text: word });
            }
            _ => tokens.push(Token { line, text: word }),
        }
    }
    tokens
}

/// The text with comments and what is inside literals made blank. Lines stay where they are.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (len, blank) = piece(rest, first, out.chars().next_back());
        let (piece, behind) = rest.split_at(len);
        if blank {
            out.extend(piece.chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(piece);
        }
        rest = behind;
    }
    out
}

/// How long the next piece is, and whether it says nothing.
fn piece(rest: &str, first: char, before: Option<char>) -> (usize, bool) {
    let in_word = before.is_some_and(|before| before.is_alphanumeric() || before == '_');
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), true);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), true);
    }
    if !in_word && let Some(len) = raw_string(rest) {
        return (len, true);
    }
    match first {
        '"' => (string(rest), true),
        '\'' => match char_literal(rest) {
            Some(len) => (len, true),
            None => (1, false),
        },
        _ => (first.len_utf8(), false),
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        match here {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let body = behind[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |end| end + close.len());
    Some(rest.len() - body.len() + end)
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// `'x'` or `'\…'`, not the tick of a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    match chars.next()?.1 {
        '\\' => {
            chars.next()?;
            chars.find(|(_, char)| *char == '\'').map(|(at, _)| at + 1)
        }
        _ => chars.next().filter(|(_, char)| *char == '\'').map(|(at, _)| at + 1),
    }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
