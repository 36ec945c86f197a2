//! From what was typed to arguments; what is wrong with it is said in one sentence.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::args::Arguments;
use crate::failure::Failure;

/// Reads the arguments of a process. What is asked for by `--help` or `--version` ends the process.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Arguments, Failure> {
    let name = program(arguments.first().map(OsString::as_os_str).unwrap_or_default().as_ref());
    let mut command = Arguments::command().bin_name(name);
    let parsed = command
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => Failure::wrong(sentence(&error.to_string(), name)),
    })
}

/// What people type: as a plugin of kubectl the program has two words.
fn program(path: &Path) -> &'static str {
    let file = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if file.starts_with("kubectl-") || file.starts_with("kubectl_") {
        "kubectl larder"
    } else {
        "larder"
    }
}

/// The first paragraph of a longer text in one line, and where to read on.
fn sentence(text: &str, name: &str) -> String {
    let lines = text.lines().map(str::trim);
    let first: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let first = first.strip_prefix("error: ").unwrap_or(&first);
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    match usage {
        Some(usage) => format!("{first}; usage: {usage}"),
        None => format!("{first}; see: {name} --help"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn refused(arguments: &[&str]) -> String {
        let arguments = arguments.iter().map(OsString::from).collect();
        let failure = parse(arguments).unwrap_err();
        let (code, sentence) = failure.parts();
        assert_eq!(code, 2);
        sentence.unwrap().to_owned()
    }

    #[rstest]
    #[case::unknown_flag(&["larder", "run", "--fast"], "unexpected argument '--fast' found; usage: larder run")]
    #[case::plugin(&["/usr/bin/kubectl-larder", "run", "--fast"], "unexpected argument '--fast' found; usage: kubectl larder run")]
    #[case::missing(&["larder", "run"], "the following required arguments were not provided: <--filename <FILE>|--images-of <SOURCE>>; usage: larder run")]
    #[case::not_a_number(&["larder", "up", "--nodes", "many"], "invalid value 'many' for '--nodes <N>': ")]
    #[case::unknown_command(&["larder", "fly"], "unrecognized subcommand 'fly'; usage: larder")]
    #[case::not_an_image(&["larder", "pull", "NOT OK"], "invalid value 'NOT OK' for '<IMAGE>...': ")]
    #[case::keep_without_demo(&["larder", "up", "--keep"], "the following required arguments were not provided: --demo; usage: larder up")]
    fn wrong_usage_is_one_line(#[case] arguments: &[&str], #[case] says: &str) {
        let sentence = refused(arguments);
        assert!(sentence.starts_with(says), "{sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}
