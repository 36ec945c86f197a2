//! The same commands in a terminal, which util-linux's `script` makes.

use serde_json::json;

use crate::larder::{Larder, ended};
use crate::up::{ON_NODE_2, Source, Up};

/// What a terminal showed.
pub(crate) struct Shown {
    pub(crate) code: Option<i32>,
    /// Everything that was sent to it.
    pub(crate) raw: String,
    /// What was on it at the end, without spaces at the ends of lines.
    pub(crate) text: String,
}

pub(crate) async fn in_terminal(larder: &Larder, arguments: &[&str], columns: usize) -> Shown {
    let program = env!("CARGO_BIN_EXE_larder");
    let line = format!("stty cols {columns} rows 60; exec {program} {}", arguments.join(" "));
    let mut command = larder.command("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let ended = ended(command).await;
    Shown {
        code: ended.code,
        text: Screen::of(&ended.stdout, columns),
        raw: ended.stdout,
    }
}

/// As much of a terminal as bars need: it wraps, moves the cursor up and down, and erases. It is as long as it has to be.
struct Screen {
    columns: usize,
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn of(raw: &str, columns: usize) -> String {
        let mut screen = Self {
            columns,
            rows: vec![],
            row: 0,
            column: 0,
        };
        let mut rest = raw.chars();
        while let Some(next) = rest.next() {
            match next {
                '\u{1b}' => {
                    let sequence: Vec<char> = escape(&mut rest);
                    if let [number @ .., command] = sequence.as_slice() {
                        screen.obey(&number.iter().collect::<String>(), *command);
                    }
                }
                '\n' => screen.row += 1,
                '\r' => screen.column = 0,
                other => screen.put(other),
            }
        }
        let lines = screen.rows.iter().map(|row| row.iter().collect::<String>());
        let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    fn obey(&mut self, number: &str, command: char) {
        let count: usize = number.parse().unwrap_or(1);
        match command {
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row += count,
            'K' => {
                let from = if number == "2" { 0 } else { self.column };
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.truncate(from);
                }
            }
            'J' => self.rows.truncate(self.row + 1),
            _ => {}
        }
    }

    fn put(&mut self, character: char) {
        if self.column == self.columns {
            self.row += 1;
            self.column = 0;
        }
        if self.rows.len() <= self.row {
            self.rows.resize(self.row + 1, vec![]);
        }
        let row = &mut self.rows[self.row];
        if row.len() <= self.column {
            row.resize(self.column + 1, ' ');
        }
        row[self.column] = character;
        self.column += 1;
    }
}

/// An escape sequence after its first character and bracket, up to the letter that ends it.
fn escape(rest: &mut std::str::Chars<'_>) -> Vec<char> {
    let mut sequence = Vec::new();
    for next in rest.by_ref().skip_while(|c| *c == '[') {
        sequence.push(next);
        if next.is_ascii_alphabetic() {
            break;
        }
    }
    sequence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_a_bar_and_each_node_too() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.walk();
    up.larder.write_job("web", &image, ON_NODE_2);
    let run = ["run", "-f", "web.yaml", "--nodes", "--kubeconfig", "data/kubeconfig"];
    let screen = in_terminal(&up.larder, &run, 80).await;
    assert_eq!(screen.code, Some(0), "{}", screen.text);
    let full = "━".repeat(24);
    for row in [
        format!("  web                  {full} 1/1 nodes  589.4 KiB  Complete"),
        format!("    node-2             {full} 589.4 KiB"),
    ] {
        assert!(screen.text.contains(&row), "{row} in\n{}", screen.text);
    }
    assert!(screen.raw.contains("\u{1b}[32m"), "{:?}", screen.raw);

    // What is no bar is the same in a pipe, and has no colours to lose.
    for command in [
        &["status"][..],
        &["status", "web"],
        &["why", "web"],
        &["why", "web", "-o", "yaml"],
    ] {
        let arguments = [command, &["--kubeconfig", "data/kubeconfig"]].concat();
        let shown = in_terminal(&up.larder, &arguments, 300).await;
        assert_eq!(shown.text, up.run(command).await.well().trim_end(), "{command:?}");
    }
    let plan = ["plan", "-f", "web.yaml", "--kubeconfig", "data/kubeconfig"];
    let shown = in_terminal(&up.larder, &plan, 80).await;
    assert_eq!(shown.code, Some(0), "{}", shown.text);
    assert!(
        shown.text.contains("node-2   Fits      0 B       589.4 KiB"),
        "{}",
        shown.text
    );
}

/// Ports, times and sizes of this machine's disk. Of the ports all have five digits, so that lines break where they did.
const FILTERS: [(&str, &str); 5] = [
    (r"127\.0\.0\.1:\d{5}", "127.0.0.1:[reg]"),
    (r"-[a-z0-9]{5}\b( +)", "-[#]$1"),
    (r" +\d+\.\d GiB", " [disk]"),
    (r"FREE +", "FREE "),
    (r"v1\.\d+\.0\+larder-[0-9.]+", "[version]."),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_longer_than_the_terminal() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.walk();
    up.larder.write_job("web", &image, ON_NODE_2);
    up.larder.write_job("typo", &format!("{image}.2"), ON_NODE_2);
    let both = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob", "metadata": {"name": "both"},
        "spec": {"images": [image, format!("{image}.2")], "selector": {"names": ["node-2"]}},
    });
    up.larder.write("both.yaml", &both.to_string());
    for file in ["web.yaml", "typo.yaml"] {
        up.run(&["run", "-f", file]).await;
    }
    assert_fits(&up, "status", &["status", "-A"], 0).await;
    assert_fits(&up, "status_of_a_failed_job", &["status", "typo"], 0).await;
    assert_fits(&up, "why", &["why", "typo"], 0).await;
    assert_fits(&up, "plan", &["plan", "-f", "web.yaml"], 0).await;
    assert_fits(&up, "plan_of_a_missing_tag", &["plan", "-f", "typo.yaml"], 1).await;
    assert_fits(&up, "doctor", &["doctor"], 0).await;
    up.run(&["run", "-f", "both.yaml"]).await;
    assert_fits(&up, "status_of_a_list", &["status", "both"], 0).await;
    assert_fits(&up, "why_of_a_list", &["why", "both", "node-2"], 0).await;
}

/// What a command shows at both widths is as it was, and no line is too long.
async fn assert_fits(up: &Up, name: &str, command: &[&str], code: i32) {
    for columns in [80, 160] {
        let arguments = [command, &["--kubeconfig", "data/kubeconfig"]].concat();
        let shown = in_terminal(&up.larder, &arguments, columns).await;
        assert_eq!(shown.code, Some(code), "{}", shown.text);
        // A line that is too long would have been broken by the terminal; these are as they were sent.
        for line in shown.raw.lines().filter(|line| !line.contains("error:")) {
            assert!(without_colours(line.trim_end()).chars().count() <= columns, "{line}");
        }
        let filters = FILTERS;
        insta::with_settings!({filters => filters}, { insta::assert_snapshot!(format!("{name}_at_{columns}"), shown.text) });
    }
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

/// Nothing that vanishes on a white background, or on a black one: no white, no black, no yellow, none of the bright ones.
#[tokio::test(flavor = "multi_thread")]
async fn every_colour_can_be_read_on_light_and_dark() {
    let larder = Larder::new();
    let demo = in_terminal(&larder, &["up", "--demo"], 80).await;
    let error = in_terminal(&larder, &["lint", "gone.yaml"], 80).await;
    let raw = demo.raw + &error.raw;
    let codes: std::collections::BTreeSet<&str> = raw
        .split("\u{1b}[")
        .skip(1)
        .filter_map(|rest| {
            rest.split_once(|letter: char| letter.is_ascii_alphabetic())
                .map(|(code, _)| (code, rest))
        })
        .filter(|(code, rest)| rest[code.len()..].starts_with('m'))
        .map(|(code, _)| code)
        .collect();
    let readable = ["0", "1", "2", "31", "32"];
    assert!(codes.iter().all(|code| readable.contains(code)), "{codes:?}");
    assert!(codes.contains("32") && codes.contains("31"), "{codes:?}");
}

#[tokio::test]
async fn what_is_made_for_files_looks_like_one() {
    let larder = Larder::new();
    for command in [&["crds"][..], &["completions", "bash"], &["lint", "--help"]] {
        let shown = in_terminal(&larder, command, 300).await;
        assert_eq!(shown.code, Some(0));
        assert!(!shown.raw.contains("\u{1b}[32m"), "{command:?}");
        assert!(!shown.text.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_has_a_bar() {
    let source = Source::start().await;
    let image = source.offer("a").await;
    source.walk();
    let larder = Larder::new();
    let screen = in_terminal(&larder, &["pull", &image, "--to", "images"], 80).await;
    assert_eq!(screen.code, Some(0), "{}", screen.text);
    assert!(
        screen.text.contains(&format!("{} 589.4 KiB", "━".repeat(24))),
        "{}",
        screen.text
    );
    let plain = in_terminal(&larder, &["--no-color", "pull", &image, "--to", "images"], 80).await;
    assert!(plain.text.contains("is there already"), "{}", plain.text);
    assert!(!plain.raw.contains("\u{1b}[32m"), "{:?}", plain.raw);
}

#[tokio::test]
async fn an_error_is_red_unless_colours_are_refused() {
    let larder = Larder::new();
    let screen = in_terminal(&larder, &["lint", "gone.yaml"], 80).await;
    assert_eq!(screen.code, Some(2));
    assert!(
        screen
            .raw
            .contains("\u{1b}[31merror:\u{1b}[0m gone.yaml cannot be read"),
        "{:?}",
        screen.raw
    );
    let screen = in_terminal(&larder, &["--no-color", "lint", "gone.yaml"], 80).await;
    assert!(
        screen.raw.starts_with("error: gone.yaml cannot be read"),
        "{:?}",
        screen.raw
    );
}
