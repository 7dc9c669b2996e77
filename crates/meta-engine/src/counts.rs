//! Rows of numbers, to which transactions add without reading them ([`Tx::add`](crate::Tx::add)).
//!
//! As text, so that a database adds to them with what every database can: the version, then each number in 20 digits, greater by
//! [`Counts::BIAS`] than it is, so that none has a sign.

use crate::{EngineError, Key, Row};

/// Two numbers that change together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [i64; 2]);

impl Counts {
    pub const BIAS: u64 = 10_000_000_000_000_000_000;
    pub const DIGITS: usize = 20;
    const VERSION: u8 = 1;
    const ROW_BYTES: usize = 1 + 2 * Counts::DIGITS;

    pub fn to_row(self) -> Row {
        let mut row = vec![Counts::VERSION];
        for number in self.0 {
            let text = format!("{:020}", i128::from(number) + i128::from(Counts::BIAS));
            row.extend_from_slice(text.as_bytes());
        }
        row
    }

    /// `None`: it is no such row.
    pub fn from_row(row: &[u8]) -> Option<Counts> {
        if row.len() != Counts::ROW_BYTES || row.first() != Some(&Counts::VERSION) {
            return None;
        }
        let number = |from: usize| {
            let text = std::str::from_utf8(&row[from..from + Counts::DIGITS]).ok()?;
            i64::try_from(text.parse::<i128>().ok()? - i128::from(Counts::BIAS)).ok()
        };
        Some(Counts([number(1)?, number(1 + Counts::DIGITS)?]))
    }

    /// The row after this has been added to what is stored.
    pub fn added_to(self, key: &Key, stored: Option<&[u8]>) -> Result<Row, EngineError> {
        let damaged = || EngineError::Storage(format!("{key:?} is no row of numbers"));
        let Counts(old) = stored.map_or(Some(Counts::default()), Counts::from_row).ok_or_else(damaged)?;
        Ok(Counts([old[0].saturating_add(self.0[0]), old[1].saturating_add(self.0[1])]).to_row())
    }

    pub fn add(&mut self, by: Counts) {
        self.0[0] = self.0[0].saturating_add(by.0[0]);
        self.0[1] = self.0[1].saturating_add(by.0[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_either_sign_go_to_text_and_back() {
        for numbers in [[0, 0], [1, -1], [i64::MAX, i64::MIN], [-5, 1 << 60]] {
            assert_eq!(Counts::from_row(&Counts(numbers).to_row()), Some(Counts(numbers)));
        }
        for damaged in [&b""[..], b"\x01", &[b'x'; 41], &Counts::default().to_row()[..40]] {
            assert_eq!(Counts::from_row(damaged), None);
        }
    }
}
