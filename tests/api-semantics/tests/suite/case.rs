//! Tables of specs that a server must accept or refuse. A table runs through both versions of its kind, and reports all
//! that went wrong at once.

use serde_json::Value;

use crate::kind::Kind;
use crate::server::{Answer, Server};
use crate::yaml::yaml;

/// A spec, and what shall become of it.
pub(crate) struct Case {
    name: &'static str,
    spec: String,
    expectation: Expectation,
}

enum Expectation {
    /// Taken. What is stored is what was sent, completed with the kind's documented defaults.
    Accept,
    /// Not taken, with HTTP code 422 and a message that says this.
    Refuse(&'static str),
}

/// The server takes the spec and completes it with defaults, no more and no less.
pub(crate) fn accept(name: &'static str, spec: impl Into<String>) -> Case {
    Case {
        name,
        spec: spec.into(),
        expectation: Expectation::Accept,
    }
}

/// The server refuses the spec and says `message`.
pub(crate) fn refuse(name: &'static str, spec: impl Into<String>, message: &'static str) -> Case {
    Case {
        name,
        spec: spec.into(),
        expectation: Expectation::Refuse(message),
    }
}

/// Sends every case through both versions. `completed` gives a spec its documented defaults.
pub(crate) async fn check(server: &Server, kind: Kind, cases: &[Case], completed: fn(&Value) -> Value) {
    assert_names_differ(cases);
    let mut wrong = Vec::new();
    for resource in kind.versions() {
        for case in cases {
            let spec = yaml(&case.spec);
            let answer = server.create(resource, &server.object(resource, &spec)).await;
            if let Err(what) = verdict(case, &answer, &completed(&spec)) {
                wrong.push(format!("{} {}: {what}", resource.version, case.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases went wrong:\n{}",
        wrong.len(),
        cases.len() * 2,
        wrong.join("\n")
    );
}

fn verdict(case: &Case, answer: &Answer, completed: &Value) -> Result<(), String> {
    match (&case.expectation, answer.code) {
        (Expectation::Accept, 201) if answer.body["spec"] == *completed => Ok(()),
        (Expectation::Accept, 201) => Err(format!("stored {}\ninstead of {completed}", answer.body["spec"])),
        (Expectation::Accept, code) => Err(format!("refused with {code}: {}", answer.message())),
        (Expectation::Refuse(_), 201) => Err("accepted".to_owned()),
        (Expectation::Refuse(text), 422) if answer.message().contains(text) => Ok(()),
        (Expectation::Refuse(text), code) => Err(format!(
            "refused with {code}: {}\ninstead of 422 with: {text}",
            answer.message()
        )),
    }
}

fn assert_names_differ(cases: &[Case]) {
    let mut names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
}
