//! Rows of numbers, to which transactions add without reading them ([`Tx::add`](crate::Tx::add)).
//!
//! As text, so that a database adds to them with what every database can: the version, then each number in 30 digits, greater by
//! [`Counts::BIAS`] than it is, so that none has a sign. So large that the sizes of ten thousand million files of any length have room.

use crate::{EngineError, Key, Row};

/// Two numbers that change together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [i128; 2]);

impl Counts {
    pub const BIAS: i128 = 10_i128.pow(29);
    pub const DIGITS: usize = 30;
    /// Numbers in a row are no further from 0: what adds to a row can read what it has written.
    const MAX: i128 = Counts::BIAS - 1;
    const VERSION: u8 = 1;
    const ROW_BYTES: usize = 1 + 2 * Counts::DIGITS;

    pub fn to_row(self) -> Row {
        let mut row = vec![Counts::VERSION];
        for number in self.0 {
            let text = format!("{:030}", number.clamp(-Counts::MAX, Counts::MAX) + Counts::BIAS);
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
            let digits = row.get(from..from + Counts::DIGITS)?;
            let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
            Some(text.parse::<i128>().ok()? - Counts::BIAS)
        };
        Some(Counts([number(1)?, number(1 + Counts::DIGITS)?]))
    }

    /// The row after this has been added to what is stored.
    pub fn added_to(self, key: &Key, stored: Option<&[u8]>) -> Result<Row, EngineError> {
        let damaged = || EngineError::Storage(format!("{key:?} is no row of numbers"));
        let mut sum = stored.map_or(Some(Counts::default()), Counts::from_row).ok_or_else(damaged)?;
        sum.add(self);
        Ok(sum.to_row())
    }

    pub fn add(&mut self, by: Counts) {
        self.0[0] = self.0[0].saturating_add(by.0[0]);
        self.0[1] = self.0[1].saturating_add(by.0[1]);
    }

    /// As far as these numbers go: for people, and for messages.
    pub fn shown(self) -> [i64; 2] {
        self.0.map(|number| number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_either_sign_go_to_text_and_back() {
        for numbers in [[0, 0], [1, -1], [i64::MAX.into(), i64::MIN.into()], [-5, 1 << 90]] {
            assert_eq!(Counts::from_row(&Counts(numbers).to_row()), Some(Counts(numbers)));
        }
        for damaged in [&b""[..], b"\x01", &[b'x'; 61], &Counts::default().to_row()[..60]] {
            assert_eq!(Counts::from_row(damaged), None);
        }
    }

    #[test]
    fn what_is_too_large_ends_at_what_can_be_read() {
        let key = Key::new(crate::Table::Quotas, 1, b"n");
        for (far, sign) in [(i128::MAX, 1), (i128::MIN, -1)] {
            let row = Counts([far, far]).to_row();
            assert_eq!(Counts::from_row(&row), Some(Counts([sign * Counts::MAX; 2])));
            let row = Counts([sign; 2]).added_to(&key, Some(&row)).expect("a row of numbers");
            assert_eq!(Counts::from_row(&row), Some(Counts([sign * Counts::MAX; 2])));
        }
        assert_eq!(Counts([1 << 63, -1 << 70]).shown(), [i64::MAX, i64::MIN]);
    }
}
