use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest path component in bytes, as in every Linux file system.
pub const NAME_BYTES_MAX: usize = 255;

/// One path component: 1 to 255 bytes, neither `.` nor `..`, without `/` and NUL. Any other byte is allowed,
/// as POSIX asks; nothing assumes UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Box<[u8]>);

/// Why bytes are not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name cannot be empty")]
    Empty,
    #[error("a name has at most 255 bytes, this one has {0}")]
    TooLong(usize),
    #[error("a name cannot contain '/' or NUL")]
    BadByte,
    #[error("'.' and '..' cannot name an entry")]
    Dots,
}

impl Name {
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            _ if bytes.len() > NAME_BYTES_MAX => Err(NameError::TooLong(bytes.len())),
            _ if bytes.iter().any(|&b| b == b'/' || b == 0) => Err(NameError::BadByte),
            _ => Ok(Name(bytes.into())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, NameError> {
        Name::new(&bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Vec<u8> {
        name.0.into_vec()
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Name::new(text.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(Name::new(&[b'x'; 255]).unwrap().as_bytes().len(), 255);
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong(256)));
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        assert_eq!(Name::new(b".."), Err(NameError::Dots));
        assert_eq!(Name::new(b"a/b"), Err(NameError::BadByte));
        assert_eq!(Name::new(b"a\0"), Err(NameError::BadByte));
        assert!(Name::new(b"\xff\xfe").is_ok());
    }

    #[test]
    fn a_bad_name_in_a_message_is_refused() {
        let bytes = postcard::to_stdvec(&b"a/b".to_vec()).unwrap();
        assert!(postcard::from_bytes::<Name>(&bytes).is_err());
    }
}
