use super::*;
use rstest::rstest;

fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
    let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
    rows.iter().map(row).collect()
}

/// A message that clears the screen, forges a row and turns its text around.
#[rstest]
#[case::pipe(None)]
#[case::beside(Some(60))]
#[case::below(Some(30))]
fn foreign_text_stays_in_its_cell(#[case] width: Option<usize>) {
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7} gone\nnode-2   Succeeded\r\u{202e}dne\u{9b}1m";
    for last in [Narrow::Wrap, Narrow::Cut] {
        let columns = [("NODE", Narrow::Keep), ("MESSAGE", last)];
        let text = fitted(&columns, &rows(&[&["node-1", hostile]]), width).to_string();
        assert!(
            !text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{text:?}"
        );
        assert!(!text.lines().any(|line| line.starts_with("node-2")), "{text}");
        for line in text.lines().filter(|_| width.is_some()) {
            assert!(columns_of(line) <= width.unwrap(), "{line}");
        }
    }
}

#[test]
fn columns_are_as_wide_as_they_need() {
    let rows = rows(&[&["a", "10", ""], &["long-name", "2", "said"]]);
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| cells(row)).collect();
    let text = table(&["NAME", "NODES", "MESSAGE"], &rows);
    assert_eq!(
        text.as_str(),
        "NAME        NODES   MESSAGE\na           10\nlong-name   2       said\n"
    );
}

const COLUMNS: [Column; 4] = [
    ("NAME", Narrow::Keep),
    ("SIZE", Narrow::Drop(2)),
    ("ETA", Narrow::Drop(1)),
    ("MESSAGE", Narrow::Cut),
];

#[rstest]
#[case::pipe(
    None,
    "NAME   SIZE   ETA   MESSAGE\nweb    10     4s    job is running, a long sentence\n"
)]
#[case::room(
    Some(80),
    "NAME   SIZE   ETA   MESSAGE\nweb    10     4s    job is running, a long sentence\n"
)]
#[case::cut(
    Some(46),
    "NAME   SIZE   ETA   MESSAGE\nweb    10     4s    job is running, a long se…\n"
)]
#[case::least_needed_goes(Some(40), "NAME   SIZE   MESSAGE\nweb    10     job is running, a long se…\n")]
#[case::next_goes(Some(32), "NAME   MESSAGE\nweb    job is running, a long s…\n")]
#[case::nothing_left_to_go(Some(20), "NAME   MESSAGE\nweb    job is runni…\n")]
fn a_table_keeps_to_its_width(#[case] width: Option<usize>, #[case] want: &str) {
    let rows = rows(&[&["web", "10", "4s", "job is running, a long sentence"]]);
    assert_eq!(fitted(&COLUMNS, &rows, width).as_str(), want);
}

#[rstest]
#[case::pipe(
    None,
    "NODE     EXPLANATION\nnode-1   Check the image name and tag for typing errors.\nnode-2\n"
)]
#[case::beside(
    Some(40),
    "NODE     EXPLANATION\nnode-1   Check the image name and tag\n         for typing errors.\nnode-2\n"
)]
#[case::below(
    Some(30),
    "NODE\nnode-1\n    Check the image name and\n    tag for typing errors.\nnode-2\n"
)]
fn explanations_go_on_below(#[case] width: Option<usize>, #[case] want: &str) {
    let columns = [("NODE", Narrow::Keep), ("EXPLANATION", Narrow::Wrap)];
    let rows = rows(&[
        &["node-1", "Check the image name and tag for typing errors."],
        &["node-2", ""],
    ]);
    assert_eq!(fitted(&columns, &rows, width).as_str(), want);
}

#[test]
fn a_word_longer_than_a_line_is_broken() {
    let lines = wrap("see sha256:0123456789 there", 8);
    assert_eq!(lines, ["see", "sha256:0", "12345678", "9 there"]);
}

#[rstest]
#[case(1)]
#[case(7)]
#[case(24)]
#[case(79)]
fn no_line_is_too_long(#[case] room: usize) {
    let text =
        "Failed to pull image reference \"registry.example/models/large@sha256:0123456789abcdef\": no such manifest.";
    for line in wrap(text, room) {
        assert!(columns_of(&line) <= room, "{line}");
    }
}
