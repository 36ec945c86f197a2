//! The fields of a cron schedule: `*`, numbers, names, ranges, steps and lists of them.

use std::ops::RangeInclusive;

use thiserror::Error;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One of the five fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    min: u8,
    /// The last number that `*` stands for.
    max: u8,
    /// The largest number that may be written.
    largest: u8,
    /// Words for the numbers from `min` on.
    words: &'static [&'static str],
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// Not one of its numbers or words.
    #[error("{text:?} is not a number from {min} to {max}{words}")]
    Number {
        /// What is written.
        text: String,
        /// The smallest number.
        min: u8,
        /// The largest.
        max: u8,
        /// The words that may be written instead.
        words: &'static str,
    },
    /// A range whose end comes first.
    #[error("the range {0:?} ends before it begins")]
    Range(String),
    /// A step that is no number, or 0.
    #[error("the step in {0:?} is not a number from 1 to 99")]
    Step(String),
}

impl Field {
    pub(super) const MINUTE: Self = Self::numbers("minute", 0, 59);
    pub(super) const HOUR: Self = Self::numbers("hour", 0, 23);
    pub(super) const DAY: Self = Self::numbers("day of the month", 1, 31);
    pub(super) const MONTH: Self = Self {
        words: &MONTHS,
        ..Self::numbers("month", 1, 12)
    };
    /// 7 is Sunday too.
    pub(super) const WEEKDAY: Self = Self {
        words: &WEEKDAYS,
        largest: 7,
        ..Self::numbers("day of the week", 0, 6)
    };

    const fn numbers(name: &'static str, min: u8, max: u8) -> Self {
        Self {
            name,
            min,
            max,
            largest: max,
            words: &[],
        }
    }

    /// Every number.
    pub(super) fn all(self) -> u64 {
        bits(self.min..=self.max, 1)
    }

    /// The numbers that a text stands for.
    pub(super) fn parse(self, text: &str) -> Result<u64, FieldError> {
        let mut numbers = 0;
        for part in text.split(',') {
            numbers |= self.parse_part(part)?;
        }
        let sunday = numbers >> 7 & 1;
        Ok(if self.largest == self.max {
            numbers
        } else {
            (numbers | sunday) & self.all()
        })
    }

    fn parse_part(self, part: &str) -> Result<u64, FieldError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let numbers = match range.split_once('-') {
            _ if range == "*" => self.min..=self.max,
            Some((first, last)) => self.range(range, first, last)?,
            None => {
                let first = self.number(range)?;
                // As in a CronJob, `5/10` is every tenth from 5 on.
                first..=step.map_or(first, |_| self.max.max(first))
            }
        };
        let step = step.map_or(Ok(1), |step| {
            let number = digits(step).filter(|step| *step != 0);
            number.ok_or_else(|| FieldError::Step(part.to_owned()))
        })?;
        Ok(bits(numbers, step))
    }

    fn range(self, range: &str, first: &str, last: &str) -> Result<RangeInclusive<u8>, FieldError> {
        let (first, mut last) = (self.number(first)?, self.number(last)?);
        if last == 0 && 0 < first && self.largest != self.max {
            // Fri-Sun.
            last = self.largest;
        }
        if last < first {
            return Err(FieldError::Range(range.to_owned()));
        }
        Ok(first..=last)
    }

    fn number(self, text: &str) -> Result<u8, FieldError> {
        let word = self.words.iter().position(|word| text.eq_ignore_ascii_case(word));
        let word = word
            .and_then(|position| u8::try_from(position).ok())
            .map(|position| position + self.min);
        let number = word.or_else(|| digits(text));
        number
            .filter(|number| (self.min..=self.largest).contains(number))
            .ok_or_else(|| FieldError::Number {
                text: text.to_owned(),
                min: self.min,
                max: self.largest,
                words: match self.words.len() {
                    0 => "",
                    7 => " or a day such as Mon",
                    _ => " or a month such as Jan",
                },
            })
    }
}

/// The fields that a word such as `@daily` stands for.
pub(super) fn named(word: &str) -> Option<&'static str> {
    match word {
        "@hourly" => Some("0 * * * *"),
        "@daily" | "@midnight" => Some("0 0 * * *"),
        "@weekly" => Some("0 0 * * 0"),
        "@monthly" => Some("0 0 1 * *"),
        "@yearly" | "@annually" => Some("0 0 1 1 *"),
        _ => None,
    }
}

/// Days that a month has in some year.
pub(super) const fn days_of(month: i8) -> i8 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A number of one or two digits.
fn digits(text: &str) -> Option<u8> {
    let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn bits(numbers: RangeInclusive<u8>, step: u8) -> u64 {
    numbers.step_by(step.into()).fold(0, |bits, number| bits | 1 << number)
}
