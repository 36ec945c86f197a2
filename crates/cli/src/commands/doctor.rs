//! `larder doctor`: looks at a cluster and says in sentences what is wrong with Larder in it, and what to do.
//!
//! `gather` looks, `facts` is what it saw, `diagnose` decides what to say to it and knows no client. Nothing is changed: the
//! one write that is tried is a dry run.

mod diagnose;
mod facts;
mod gather;

use serde::Serialize;

use self::diagnose::{Area, Finding, Level, diagnose};
pub(crate) use self::gather::may_seal;
use crate::args::{Cluster, Doctor};
use crate::client;
use crate::failure::Failure;
use crate::output;
use crate::printable::{Printable, Tone};
use crate::table::wrap;

/// Columns of the first word of a line, with the gap behind it.
const MARK: usize = 10;

/// The output of `-o json`, on which scripts rely.
#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    areas: Vec<Area>,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Doctor) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let facts = Box::pin(gather::gather(&client, arguments.system_namespace.as_deref())).await?;
    let report = Report::of(diagnose(&facts));
    output::value(arguments.output, &report, || report.shown(output::width()))?;
    report.outcome()
}

impl Report {
    fn of(areas: Vec<Area>) -> Self {
        let mut findings = areas.iter().flat_map(|area| &area.findings);
        Self {
            healthy: !findings.any(|finding| finding.level == Level::Problem),
            areas,
        }
    }

    fn problems(&self) -> usize {
        let findings = self.areas.iter().flat_map(|area| &area.findings);
        findings.filter(|finding| finding.level == Level::Problem).count()
    }

    fn outcome(&self) -> Result<(), Failure> {
        match self.problems() {
            0 => Ok(()),
            1 => Err(Failure::bad("1 problem was found")),
            number => Err(Failure::bad(format!("{number} problems were found"))),
        }
    }

    fn shown(&self, width: Option<usize>) -> Printable {
        let area = |area: &Area| -> Printable {
            if area.findings.is_empty() {
                let fine = format!("{}: {}", area.name, area.fine);
                return lines("ok", Tone::Good, &fine, width);
            }
            area.findings
                .iter()
                .map(|finding| finding.shown(area.name, width))
                .collect()
        };
        self.areas.iter().map(area).collect()
    }
}

impl Finding {
    fn shown(&self, area: &str, width: Option<usize>) -> Printable {
        let (mark, tone) = match self.level {
            Level::Problem => ("problem", Tone::Bad),
            Level::Note => ("note", Tone::Strong),
        };
        let says = lines(mark, tone, &format!("{area}: {}", self.says), width);
        let advice = lines("", Tone::Faint, &self.advice, width);
        says.then(&advice)
    }
}

/// A word, and beside it a text that goes on below itself.
fn lines(mark: &str, tone: Tone, text: &str, width: Option<usize>) -> Printable {
    let parts = match width {
        Some(width) => wrap(text, width.saturating_sub(MARK)),
        None => vec![text.to_owned()],
    };
    let line = |(number, part): (usize, &String)| {
        let mark = if number == 0 { mark } else { "" };
        let gap = " ".repeat(MARK - mark.len());
        let text = match mark {
            "" => Printable::default(),
            mark => Printable::default().painted(tone, mark),
        };
        text.plain(&gap).plain(part).end_line()
    };
    parts.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let area = |name, findings| Area {
            name,
            fine: "All is well.".to_owned(),
            findings,
        };
        let finding = |level, nodes: &[&str]| Finding {
            level,
            says: "The agent's pod is not ready (ImagePullBackOff) on 2 nodes: a, b.".to_owned(),
            advice: "Look at it: kubectl -n larder-system get pods -o wide".to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        };
        Report::of(vec![
            area("crds", vec![]),
            area(
                "agents",
                vec![finding(Level::Problem, &["a", "b"]), finding(Level::Note, &[])],
            ),
        ])
    }

    #[test]
    fn in_a_pipe_a_sentence_is_a_line() {
        insta::assert_snapshot!(report().shown(None));
    }

    #[test]
    fn on_a_terminal_a_sentence_goes_on_below() {
        insta::assert_snapshot!(report().shown(Some(60)));
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&report()).unwrap());
    }

    #[test]
    fn notes_alone_are_no_problem() {
        let mut report = report();
        assert_eq!(report.outcome().unwrap_err().parts(), (1, Some("1 problem was found")));
        report.areas[1].findings.remove(0);
        assert!(report.outcome().is_ok());
        assert!(Report::of(report.areas).healthy);
    }
}
