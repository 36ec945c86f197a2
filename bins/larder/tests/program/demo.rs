//! The demonstration, as `make demo` runs it.

use rustix::process::Signal;

use crate::larder::{Larder, Running, ended, exit_code, send};
use crate::terminal::in_terminal;

#[tokio::test(flavor = "multi_thread")]
async fn all_examples_end_as_they_should_and_it_stays_up() {
    let larder = Larder::new();
    let mut demo = Running::start(&larder, &["up", "--demo", "--keep"]);
    let said = demo.read_until("KUBECONFIG=").await;
    let (_, summary) = said.split_once("\nEXAMPLE").expect("a summary");
    let (summary, invitation) = summary.split_once("\n\nIt stays up").expect("an invitation");
    let filters = [(r"\d+\.\d ?s", "[time]"), (r" {2,}", "  ")];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(format!("EXAMPLE{summary}")) });
    assert!(!said.contains('\u{1b}'), "no colours in a pipe: {said:?}");

    let (_, kubeconfig) = invitation.split_once("export KUBECONFIG=").expect("a kubeconfig");
    let kubeconfig = kubeconfig.lines().next().unwrap();
    assert_eq!(said.lines().last(), Some(format!("KUBECONFIG={kubeconfig}").as_str()));
    let why = larder.run(&["why", "typo", "--kubeconfig", kubeconfig]).await.well();
    assert_eq!(why.matches("NotFound").count(), 3, "{why}");
    send(&demo.child, Signal::INT);
    assert_eq!(exit_code(&mut demo.child).await, Some(0));
    assert!(is_empty(&larder));
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_cleans_up() {
    let larder = Larder::new();
    let mut demo = Running::start(&larder, &["up", "--demo"]);
    demo.read_until("imagepulljob/job-with-always: Running").await;
    send(&demo.child, Signal::INT);
    assert_eq!(exit_code(&mut demo.child).await, Some(130));
    assert!(is_empty(&larder));
}

fn is_empty(larder: &Larder) -> bool {
    std::fs::read_dir(larder.home.path()).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_it_fits_into_80_columns() {
    let larder = Larder::new();
    let shown = in_terminal(&larder, &["up", "--demo"], 80).await;
    assert_eq!(shown.code, Some(0), "{}", shown.text);
    assert!(shown.raw.contains("\u{1b}[32m"), "colours on a terminal");
    let filters = [
        (r" +\d+\.\ds\n", " [time]\n"),
        (r" +\d+\.\ds +", " [time] "),
        (r"TIME +REASON", "TIME REASON"),
        (r"\d+\.\d s", "[time]"),
    ];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(shown.text) });
}

#[tokio::test]
async fn a_folder_that_is_in_use_is_left_alone() {
    let larder = Larder::new();
    std::fs::create_dir(larder.home.path().join("data")).unwrap();
    larder.write("data/objects.redb", "");
    let sentence = ended(larder.larder(&["up", "--demo", "--data", "data"])).await.badly(2);
    assert_eq!(
        sentence,
        "data holds the data of an earlier start; give the demonstration a new folder with --data, or none"
    );
}
