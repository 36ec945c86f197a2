//! What became of the examples: one table, and whether it all went as it should.

use std::time::Duration;

use larder_model::ByteSize;

use super::scenario::Expected;
use crate::failure::Failure;
use crate::job::{JobView, Phase};
use crate::printable::{Printable, Tone};
use crate::table::{Cell, cut};

/// Longest title of an example.
#[cfg(test)]
pub(crate) const TITLE: usize = 17;

/// Columns of a reason; longer ones are cut, the nodes' rows above have said them.
const REASON: usize = 15;

/// What became of one example.
pub(crate) struct Outcome {
    pub(crate) title: &'static str,
    pub(crate) expected: Expected,
    pub(crate) views: Vec<JobView>,
    pub(crate) took: Duration,
    /// The nodes have their images under all names that they should.
    pub(crate) names_present: bool,
}

impl Outcome {
    fn phase(&self) -> Phase {
        if !self.views.is_empty() && self.views.iter().all(|view| view.phase == Phase::Complete) {
            Phase::Complete
        } else {
            Phase::Failed
        }
    }

    fn count(&self, count: fn(&JobView) -> i32) -> i32 {
        self.views.iter().map(count).sum()
    }

    fn reasons(&self) -> String {
        let reasons: Vec<&str> = self
            .views
            .iter()
            .flat_map(|view| view.reasons.keys())
            .map(String::as_str)
            .collect();
        reasons.join(", ")
    }

    /// Phase, counts and reason, as the example should have them.
    fn as_expected(&self) -> bool {
        let Expected { phase, done, reason } = self.expected;
        self.names_present
            && self.phase() == phase
            && self.count(|view| view.succeeded) == done
            && self.reasons() == reason.unwrap_or_default()
    }
}

/// One row for each example; fits into 80 columns.
pub(crate) fn table(outcomes: &[Outcome]) -> Printable {
    let rows: Vec<Vec<Cell>> = outcomes.iter().map(row).collect();
    crate::table::table(&["EXAMPLE", "ENDED", "OK", "DONE", "SIZE", "TIME", "REASON"], &rows)
}

fn row(outcome: &Outcome) -> Vec<Cell> {
    let bytes: i64 = outcome.views.iter().filter_map(|view| view.bytes_done).sum();
    let ok = if outcome.as_expected() {
        Cell::painted(Tone::Good, "yes")
    } else {
        Cell::painted(Tone::Bad, "NO")
    };
    vec![
        outcome.title.to_owned().into(),
        outcome.phase().as_str().to_owned().into(),
        ok,
        format!(
            "{}/{}",
            outcome.count(|view| view.succeeded),
            outcome.count(|view| view.desired)
        )
        .into(),
        ByteSize(u64::try_from(bytes).unwrap_or(0)).to_string().into(),
        format!("{:.1}s", outcome.took.as_secs_f64()).into(),
        cut(&outcome.reasons(), REASON).into(),
    ]
}

/// Explains the sizes: a layer that a node has already is not fetched again, and this saving is not measured.
pub(crate) const SIZES: &str = "SIZE counts each pulled image whole, also the layers that a node had already.";

/// A sentence for a good end, a failure for any other.
pub(crate) fn verdict(outcomes: &[Outcome], took: Duration) -> Result<String, Failure> {
    let count = outcomes.len();
    let wrong: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.as_expected())
        .map(|outcome| outcome.title)
        .collect();
    if wrong.is_empty() {
        let seconds = took.as_secs_f64();
        return Ok(format!("All {count} examples ended as they should, in {seconds:.1} s."));
    }
    Err(Failure::bad(format!(
        "{} of {count} examples did not end as they should: {}",
        wrong.len(),
        wrong.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// An example of which two nodes are done and one is not.
    fn outcome(expected: Expected) -> Outcome {
        Outcome {
            title: "a missing tag",
            expected,
            views: vec![JobView {
                desired: 3,
                succeeded: 2,
                failed: 1,
                bytes_done: Some(2048),
                phase: Phase::Failed,
                reasons: [("CredentialsUnreadable".to_owned(), 1)].into(),
                ..JobView::default()
            }],
            took: Duration::from_millis(1240),
            names_present: true,
        }
    }

    const RIGHT: Expected = Expected {
        phase: Phase::Failed,
        done: 2,
        reason: Some("CredentialsUnreadable"),
    };

    #[test]
    fn an_end_that_should_not_be_is_shouted() {
        let right = outcome(RIGHT);
        let wrong = outcome(Expected {
            phase: Phase::Complete,
            ..RIGHT
        });
        insta::assert_snapshot!(table(&[right, wrong]), @r"
        EXAMPLE         ENDED    OK    DONE   SIZE      TIME   REASON
        a missing tag   Failed   yes   2/3    2.0 KiB   1.2s   CredentialsUnr…
        a missing tag   Failed   NO    2/3    2.0 KiB   1.2s   CredentialsUnr…
        ");
    }

    #[test]
    fn the_widest_row_fits_into_80_columns() {
        const LONGEST: &str = "wwwwwwwwwwwwwwwww";
        assert_eq!(LONGEST.len(), TITLE);
        let view = |phase| JobView {
            bytes_done: Some(1023 << 20),
            phase,
            desired: 3,
            reasons: [("CredentialsUnreadable".to_owned(), 1), ("NotFound".to_owned(), 2)].into(),
            ..JobView::default()
        };
        let widest = |phase| Outcome {
            title: LONGEST,
            views: vec![view(phase)],
            took: Duration::from_mins(1),
            names_present: true,
            expected: RIGHT,
        };
        let text = table(&[widest(Phase::Complete), widest(Phase::Failed)]).to_string();
        for line in text.lines().chain([SIZES]) {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
    }

    #[rstest]
    #[case::other_phase(Expected { phase: Phase::Complete, ..RIGHT })]
    #[case::other_count(Expected { done: 3, ..RIGHT })]
    #[case::other_reason(Expected { reason: Some("NotFound"), ..RIGHT })]
    #[case::no_reason(Expected { reason: None, ..RIGHT })]
    fn one_wrong_end_is_a_failure(#[case] expected: Expected) {
        let failure = verdict(&[outcome(RIGHT), outcome(expected)], Duration::ZERO).unwrap_err();
        assert_eq!(
            failure.parts(),
            (1, Some("1 of 2 examples did not end as they should: a missing tag"))
        );
    }

    #[test]
    fn a_name_that_is_missing_is_a_failure() {
        let missing = Outcome {
            names_present: false,
            ..outcome(RIGHT)
        };
        assert!(verdict(&[missing], Duration::ZERO).is_err());
    }

    #[test]
    fn all_right_is_said_with_the_time() {
        let sentence = verdict(&[outcome(RIGHT)], Duration::from_millis(2500)).unwrap();
        assert_eq!(sentence, "All 1 examples ended as they should, in 2.5 s.");
    }
}
