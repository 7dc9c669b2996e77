//! Shell patterns over bytes: `*`, `?`, `[a-z]`, `[!x]`, `\x`.

/// Does the whole of `name` match?
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match one(&pattern[p..], name[n]) {
            Some(used) => {
                p += used;
                n += 1;
            }
            None if pattern.get(p) == Some(&b'*') => {
                star = Some((p, n));
                p += 1;
            }
            None => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Bytes of the pattern that stand for `byte`, if its beginning does. Never a star.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'*', ..] | [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((true, len)) => Some(len + 1),
            Some((false, _)) => None,
            // Without an end it is a bracket.
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// (is the byte in the set, bytes of the set with its end).
fn set(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let not = usize::from(matches!(pattern.first(), Some(b'!' | b'^')));
    // An end that comes first is an element.
    let end = not + 1 + pattern.get(not + 1..)?.iter().position(|&b| b == b']')?;
    let (elements, mut found, mut i) = (&pattern[not..end], false, 0);
    while i < elements.len() {
        let last = match elements.get(i + 1..i + 3) {
            Some([b'-', last]) => *last,
            _ => elements[i],
        };
        found |= (elements[i]..=last).contains(&byte);
        i += if elements.get(i + 1) == Some(&b'-') && i + 2 < elements.len() { 3 } else { 1 };
    }
    Some((found != (not == 1), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, yes, no) in [
            ("*.log", "a.log", "a.logs"),
            ("a?c", "abc", "ac"),
            ("*a*b*", "xxaxxbxx", "xxbxxa"),
            ("[a-c]x", "bx", "dx"),
            ("[!a-c]x", "dx", "bx"),
            ("[]]", "]", "["),
            ("\\*", "*", "a"),
            ("[ab", "[ab", "a"),
            ("**", "", "\0never"),
            ("a[-x]", "a-", "ab"),
        ] {
            assert!(matches(pattern.as_bytes(), yes.as_bytes()), "{pattern} {yes}");
            assert!(no.starts_with('\0') || !matches(pattern.as_bytes(), no.as_bytes()), "{pattern} {no}");
        }
        // Many stars against a long name: quadratic, not exponential.
        assert!(!matches(&b"*a".repeat(50), &[b'a'; 40]));
    }
}
