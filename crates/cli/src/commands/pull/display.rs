//! How pulls are shown: bars on a terminal, a line for each change in a pipe.

use larder_agent::once::TagStatuses;
use larder_api::node_image::ImageTagStatus;
use larder_model::{ByteSize, ImageRef, Phase};

use crate::args::Format;
use crate::bars::{self, Bar, Bars};
use crate::output;
use crate::printable::Tone;

pub(super) enum Display {
    Nothing,
    Bars { bars: Vec<Bar>, _all: Bars },
    Lines { last: Vec<String> },
}

impl Display {
    pub(super) fn new(format: Format, images: &[ImageRef]) -> Self {
        if format != Format::Table {
            return Self::Nothing;
        }
        match Bars::on_terminal() {
            Some(all) => Self::Bars {
                bars: images.iter().map(|image| all.add(&image.to_string())).collect(),
                _all: all,
            },
            None => Self::Lines {
                last: vec![String::new(); images.len()],
            },
        }
    }

    pub(super) fn show(&mut self, statuses: &TagStatuses) {
        match self {
            Self::Nothing => {}
            Self::Bars { bars, .. } => {
                for (bar, (_, status)) in bars.iter().zip(statuses) {
                    show_bar(bar, status);
                }
            }
            Self::Lines { last } => {
                for (last, (image, status)) in last.iter_mut().zip(statuses) {
                    let line = format!("{image}: {}", words(status));
                    if *last != line {
                        output::line(&line);
                        *last = line;
                    }
                }
            }
        }
    }
}

fn show_bar(bar: &Bar, status: &ImageTagStatus) {
    let (done, total) = (status.bytes_done.unwrap_or(0), status.bytes_total.unwrap_or(0));
    match status.phase() {
        Phase::Succeeded => {
            let text = match (status.attempts, total) {
                (Some(0), _) => "is there already".to_owned(),
                (_, 0) => "pulled".to_owned(),
                (_, total) => bars::bytes(total, total),
            };
            bar.set(1.0, &text);
            bar.finish(Tone::Good);
        }
        Phase::Failed => {
            bar.set(bars::part(done, total), &words(status));
            bar.finish(Tone::Bad);
        }
        Phase::Pulling if status.reason.is_none() && 0 < total => {
            bar.set(bars::part(done, total), &bars::bytes(done, total));
        }
        Phase::Waiting | Phase::Pulling => bar.set(bars::part(done, total), &words(status)),
    }
}

fn bytes(status: &ImageTagStatus) -> Option<(u64, u64)> {
    let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    Some((number(status.bytes_done)?, number(status.bytes_total)?))
}

/// What has happened, without anything that changes all the time except tenths of the whole.
fn words(status: &ImageTagStatus) -> String {
    match status.phase() {
        Phase::Succeeded => {
            let digest = status.digest.as_deref().unwrap_or("without digest");
            let what = if status.attempts.unwrap_or(0) == 0 {
                "is there already"
            } else {
                "pulled"
            };
            match bytes(status) {
                Some((_, total)) => format!("{what}, {digest}, {}", ByteSize(total)),
                None => format!("{what}, {digest}"),
            }
        }
        Phase::Failed => format!("failed, {}", status.reason.as_deref().unwrap_or("unknown")),
        Phase::Waiting => match &status.reason {
            Some(reason) => format!("waiting, {reason}"),
            None => "waiting".to_owned(),
        },
        Phase::Pulling => match (&status.reason, bytes(status)) {
            (Some(reason), _) => format!("try {} failed, {reason}; tries again", status.attempts.unwrap_or(1)),
            (None, Some((done, total))) if total > 0 => {
                format!("pulling, {} % of {}", done * 10 / total * 10, ByteSize(total))
            }
            (None, _) => "pulling".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn status(phase: Phase, reason: Option<&str>, attempts: i32, bytes: Option<(i64, i64)>) -> ImageTagStatus {
        ImageTagStatus {
            phase: phase.as_str().into(),
            reason: reason.map(str::to_owned),
            attempts: Some(attempts),
            digest: Some("sha256:1".into()),
            bytes_done: bytes.map(|(done, _)| done),
            bytes_total: bytes.map(|(_, total)| total),
            ..ImageTagStatus::default()
        }
    }

    #[rstest]
    #[case::waiting(status(Phase::Waiting, None, 0, None), "waiting")]
    #[case::runtime_away(status(Phase::Waiting, Some("RuntimeDown"), 0, None), "waiting, RuntimeDown")]
    #[case::begun(status(Phase::Pulling, None, 1, None), "pulling")]
    #[case::in_tenths(status(Phase::Pulling, None, 1, Some((1999, 2048))), "pulling, 90 % of 2.0 KiB")]
    #[case::pause(status(Phase::Pulling, Some("Dns"), 2, None), "try 2 failed, Dns; tries again")]
    #[case::there(status(Phase::Succeeded, None, 0, None), "is there already, sha256:1")]
    #[case::pulled(status(Phase::Succeeded, None, 1, Some((5, 5))), "pulled, sha256:1, 5 B")]
    #[case::failed(status(Phase::Failed, Some("NotFound"), 1, None), "failed, NotFound")]
    fn lines(#[case] status: ImageTagStatus, #[case] want: &str) {
        assert_eq!(words(&status), want);
    }
}
