//! What became of the examples, in one table.

use std::time::Duration;

use larder_model::ByteSize;

use crate::job::{JobView, Phase};

/// What became of one example.
pub(crate) struct Outcome {
    pub(crate) act: &'static str,
    pub(crate) phase: Phase,
    pub(crate) expected: Phase,
    pub(crate) views: Vec<JobView>,
    pub(crate) took: Duration,
}

impl Outcome {
    pub(crate) fn as_expected(&self) -> bool {
        self.phase == self.expected
    }
}

/// One row for each example.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    crate::table::table(
        &[
            "EXAMPLE",
            "ENDED",
            "AS IT SHOULD",
            "DONE",
            "FAILED",
            "BYTES",
            "SECONDS",
            "MESSAGE",
        ],
        &rows,
    )
}

fn row(outcome: &Outcome) -> Vec<String> {
    let sum = |count: fn(&JobView) -> i32| outcome.views.iter().map(count).sum::<i32>().to_string();
    let bytes: i64 = outcome.views.iter().filter_map(|view| view.bytes_done).sum();
    let message = outcome
        .views
        .first()
        .map(|view| view.message.clone())
        .unwrap_or_default();
    vec![
        outcome.act.to_owned(),
        outcome.phase.as_str().to_owned(),
        if outcome.as_expected() { "yes" } else { "NO" }.to_owned(),
        sum(|view| view.succeeded),
        sum(|view| view.failed),
        ByteSize(u64::try_from(bytes).unwrap_or(0)).to_string(),
        format!("{:.1}", outcome.took.as_secs_f64()),
        message,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_should_not_be_is_shouted() {
        let outcome = Outcome {
            act: "by digest",
            phase: Phase::Failed,
            expected: Phase::Complete,
            views: vec![JobView {
                desired: 3,
                succeeded: 2,
                failed: 1,
                bytes_done: Some(2048),
                ..JobView::default()
            }],
            took: Duration::from_millis(1240),
        };
        insta::assert_snapshot!(table(&[outcome]), @r"
        EXAMPLE     ENDED    AS IT SHOULD   DONE   FAILED   BYTES     SECONDS   MESSAGE
        by digest   Failed   NO             2      1        2.0 KiB   1.2
        ");
    }
}
