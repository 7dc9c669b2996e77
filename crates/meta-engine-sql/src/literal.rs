//! Values in the text of a statement. Numbers and hexadecimal digits are all that ever gets there, so there is nothing to
//! escape and no character set to get wrong.
//!
//! Text and not prepared statements, because only text brings several statements in one message; hexadecimal and not
//! escaped, because it was measured to be no slower up to rows of 16 KiB (docs/design/0019-sql-engine.md).

use braid_meta_engine::Key;
use std::fmt::Write;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn push_bytes(text: &mut String, bytes: &[u8]) {
    text.reserve(bytes.len() * 2 + 3);
    text.push_str("X'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

pub(crate) fn push_number(text: &mut String, number: u64) {
    // Writing to a string does not fail.
    let _ = write!(text, "{number}");
}

/// `(part,X'rest')`
pub(crate) fn push_key(text: &mut String, key: &Key) {
    text.push('(');
    push_number(text, key.partition());
    text.push(',');
    push_bytes(text, key.rest());
    text.push(')');
}

/// `a,b,c`
pub(crate) fn push_list<T>(text: &mut String, items: impl IntoIterator<Item = T>, push: impl Fn(&mut String, T)) {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        push(text, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_meta_engine::Table;

    #[test]
    fn nothing_but_digits_gets_into_a_statement() {
        let mut text = String::new();
        let keys = [Key::new(Table::Inodes, u64::MAX, b"a'); --\0\xff"), Key::new(Table::Inodes, 0, b"")];
        push_list(&mut text, &keys, push_key);
        assert_eq!(text, "(18446744073709551615,X'6127293b202d2d00ff'),(0,X'')");
    }
}
