//! Goal, floor and result as people read them, and their place in the documentation.

use std::fmt::Write as _;
use std::time::Duration;

/// The section of docs/benchmarks.md that belongs to this program lies between these lines.
const BEGIN: &str = "<!-- bench-controller: begin -->";
const END: &str = "<!-- bench-controller: end -->";

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// What OpenKruise 1.9 was measured at.
    pub upstream: &'static str,
    /// What nobody can be better than.
    pub floor: String,
    /// What is to be reached.
    pub goal: &'static str,
    /// What was reached.
    pub result: String,
}

impl Row {
    /// A figure without a floor.
    pub fn new(what: impl Into<String>, upstream: &'static str, goal: &'static str, result: String) -> Self {
        Self {
            what: what.into(),
            upstream,
            floor: String::new(),
            goal,
            result,
        }
    }

    /// The same with a floor.
    #[must_use]
    pub fn above(self, floor: String) -> Self {
        Self { floor, ..self }
    }
}

/// The table in Markdown.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::from("| what | OpenKruise 1.9 | floor | goal | Larder |\n|---|--:|--:|--:|--:|\n");
    for row in rows {
        let Row {
            what,
            upstream,
            floor,
            goal,
            result,
        } = row;
        writeln!(text, "| {what} | {upstream} | {floor} | {goal} | {result} |").unwrap();
    }
    text
}

/// The page with this section in place of the old one.
pub fn splice(page: &str, section: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).unwrap_or((page, END));
    let (_, after) = rest.split_once(END).unwrap_or(("", ""));
    format!("{before}{BEGIN}\n{section}{END}{after}")
}

/// A time in the unit that suits it.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// The value at this share of all, in percent; 50 is the median.
pub fn quantile<T: PartialOrd + Copy>(values: &[T], percent: usize) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::first_time(
        "# Page\n\n",
        "# Page\n\n<!-- bench-controller: begin -->\nnew\n<!-- bench-controller: end -->"
    )]
    #[case::again(
        "a\n<!-- bench-controller: begin -->\nold\n<!-- bench-controller: end -->\nz\n",
        "a\n<!-- bench-controller: begin -->\nnew\n<!-- bench-controller: end -->\nz\n"
    )]
    fn the_rest_of_the_page_stays(#[case] page: &str, #[case] want: &str) {
        assert_eq!(splice(page, "new\n"), want);
    }

    #[rstest]
    #[case::median(50, 6)]
    #[case::worst_of_few(99, 10)]
    fn quantiles(#[case] percent: usize, #[case] want: i32) {
        let values: Vec<i32> = (1..=10).rev().collect();
        assert_eq!(quantile(&values, percent), want);
    }
}
