use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

/// A span of time: `500ms`, `10s`, `5min`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: `4096`, `64KiB`, `1MiB`, `2GiB`, `1TiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SPAN_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];
const SIZE_UNITS: [(&str, u64); 5] = [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// The number at the front and its unit's factor.
fn split(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The largest unit that shows the number whole.
fn show(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |unit: &&(&str, u64)| unit.1 > 0 && number.is_multiple_of(unit.1) && (number > 0 || unit.1 == 1);
    match units.iter().rev().find(fits) {
        Some((name, factor)) => write!(f, "{}{name}", number / factor),
        None => write!(f, "{number}{}", units[0].0),
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        split(text, &SPAN_UNITS)
            .map(|ms| Span(Duration::from_millis(ms)))
            .ok_or_else(|| format!("{text:?} is not a span of time; write 500ms, 10s, 5min or 2h"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0.as_millis() as u64, &SPAN_UNITS)
    }
}

impl FromStr for ByteSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        split(text, &SIZE_UNITS)
            .map(ByteSize)
            .ok_or_else(|| format!("{text:?} is not a size; write 4096, 64KiB, 64MiB, 2GiB or 1TiB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZE_UNITS)
    }
}

/// Texts with a unit; a bare integer is taken where it needs none.
struct TextOr<T>(fn(u64) -> Result<T, String>, PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for TextOr<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number with its unit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.0)(number).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number).map_err(|_| E::custom(format!("{number} is below zero")))?;
        self.visit_u64(number)
    }
}

macro_rules! as_text {
    ($name:ident, $of_number:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_any(TextOr($of_number, PhantomData))
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    };
}
as_text!(Span, |number| Err(format!("{number} is a time without its unit; write \"{number}ms\" or \"{number}s\"")));
as_text!(ByteSize, |number| Ok(ByteSize(number)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_read_back_what_they_print() {
        for text in ["500ms", "10s", "5min", "2h", "0ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["0", "4097", "64KiB", "1TiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        for text in ["", "10", "s", "10 parsecs", "-1s", "99999999999999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
