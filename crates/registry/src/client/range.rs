//! One range of a blob from one host: what is answered is compared with what was asked for.
//!
//! A host may ignore the range and send the whole blob. A range that does not fit the blob's size in the manifest, or begins
//! elsewhere, is refused; that the bytes are the right ones is checked by whoever keeps them, when the blob is complete.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use larder_model::{Digest, Reason};
use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, Response, StatusCode};

use super::RegistryError;
use super::repository::{Door, Read, Repository};
use crate::manifest::Descriptor;

/// What is wanted of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobRange {
    /// The first byte.
    pub(crate) start: u64,
    /// The byte behind the last one.
    pub(crate) end: u64,
    /// Ask for the whole blob, of a host that refuses ranges. What lies before `start` is passed over.
    pub(crate) by_whole: bool,
}

/// Bytes on their way.
pub(crate) struct RangeBody {
    response: Response,
    doing: String,
    stall_after: Duration,
    skip: u64,
    left: u64,
    /// Whether the host sends the range alone. Otherwise it sends the blob from its first byte to its last.
    pub(crate) is_range: bool,
    /// The host that the registry's name or a `hosts.toml` gives, without its address behind redirects.
    pub(crate) host: String,
}

impl Repository {
    /// The host to ask for a blob, among those that were not tried: mirrors first, and those that failed last.
    pub(crate) fn next_host(&self, blob: &Digest, tried: &BTreeSet<usize>) -> Option<usize> {
        let left = || self.serving().enumerate().filter(|(host, _)| !tried.contains(host));
        let good = left().find(|(_, door)| door.health.is_good_for(Some(blob)));
        good.or_else(|| left().next()).map(|(host, _)| host)
    }

    /// Takes note that a host was given up. True: it is a mirror.
    pub(crate) fn gave_up(&self, host: usize, blob: &Digest, error: &RegistryError) -> bool {
        let Some(door) = self.serving().nth(host) else {
            return false;
        };
        self.note_failure(door, Some(blob), error);
        door.endpoint.is_mirror
    }

    /// How often in a row a host may fail without having sent anything. Behind a mirror there is another host to ask.
    pub(crate) fn tries_at(&self, host: usize) -> u32 {
        let is_mirror = self.serving().nth(host).is_some_and(|door| door.endpoint.is_mirror);
        if is_mirror {
            1
        } else {
            self.transport.settings.tries.max(1)
        }
    }

    /// Asks one host for a range.
    pub(crate) async fn range(
        &self,
        host: usize,
        blob: &Descriptor,
        range: BlobRange,
    ) -> Result<RangeBody, RegistryError> {
        let doing = format!("fetching blob {} of {}", blob.digest, self.image);
        let Some(door) = self.serving().nth(host) else {
            return Err(RegistryError::new(
                Reason::Internal,
                "no host in hosts.toml has the capability that is needed",
            ));
        };
        let is_all = range.start == 0 && range.end == blob.size;
        let path = format!("blobs/{}", blob.digest);
        let read = Read {
            doing: &doing,
            method: Method::GET,
            path: &path,
            accept: None,
            from_byte: if range.by_whole { 0 } else { range.start },
            to_byte: (!is_all && !range.by_whole).then_some(range.end),
        };
        let response = self.send_with_access(door, &read).await?;
        let is_range = response.status() == StatusCode::PARTIAL_CONTENT;
        let skip = if is_range {
            bytes_before(&doing, content_range(&response), range, blob.size)?
        } else {
            check_length(&doing, &response, blob.size)?;
            range.start
        };
        Ok(RangeBody {
            response,
            doing,
            stall_after: self.transport.settings.stall_after,
            skip,
            left: range.end - range.start,
            is_range: is_range || is_all,
            host: door.endpoint.authority.clone(),
        })
    }

    fn serving(&self) -> impl Iterator<Item = &Door> {
        self.all_doors(|endpoint| endpoint.serves)
    }
}

impl RangeBody {
    /// Reads on to this byte instead of the end that was asked for: the host sends the whole blob.
    pub(crate) fn extend(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// The next bytes that are wanted, and how many crossed the line for them. `None`: all have come.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, u64)>, RegistryError> {
        let mut moved = 0;
        while 0 < self.left {
            let doing = &self.doing;
            let waited = tokio::time::timeout(self.stall_after, self.response.chunk()).await;
            let chunk = waited.map_err(|_| {
                let message = format!("{doing} stood still for {} s", self.stall_after.as_secs_f64());
                RegistryError::new(Reason::Stalled, message)
            })?;
            let chunk = chunk.map_err(|error| RegistryError::from_send(doing, error))?;
            let Some(mut chunk) = chunk else {
                return Err(RegistryError::new(Reason::Unreachable, format!("{doing} broke off")));
            };
            moved += chunk.len() as u64;
            let known = usize::try_from(self.skip).unwrap_or(usize::MAX).min(chunk.len());
            self.skip -= known as u64;
            let mut new = chunk.split_off(known);
            if new.is_empty() {
                continue;
            }
            // What comes behind the end was not asked for. It is left where it is, however much it may be.
            new.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= new.len() as u64;
            return Ok(Some((new, moved)));
        }
        Ok(None)
    }
}

fn content_range(response: &Response) -> &str {
    let header = response.headers().get(CONTENT_RANGE);
    header.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// How many bytes come before the ones that are wanted. Fails for a range of another blob.
fn bytes_before(doing: &str, said: &str, wanted: BlobRange, size: u64) -> Result<u64, RegistryError> {
    let wrong = |what: &str| RegistryError::new(Reason::InvalidImage, format!("{doing} was answered with {what}"));
    let Some((start, total)) = parse_content_range(said) else {
        return Err(wrong("a range that cannot be read"));
    };
    if total.is_some_and(|total| total != size) {
        return Err(wrong("a blob of another size than the manifest says"));
    }
    wanted.start.checked_sub(start).ok_or_else(|| wrong("another range"))
}

/// Start and total of `bytes 0-99/1000` or `bytes 0-99/*`. Any text may come here.
fn parse_content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
    let total = match total.trim() {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    (start <= end && total.is_none_or(|total| end < total)).then_some((start, total))
}

fn check_length(doing: &str, response: &Response, size: u64) -> Result<(), RegistryError> {
    match response.content_length() {
        Some(length) if length != size => Err(RegistryError::new(
            Reason::InvalidImage,
            format!("{doing} was answered with {length} bytes, but the manifest says {size}"),
        )),
        _ => Ok(()),
    }
}

/// For fuzzing: a range is refused or begins where what is wanted is part of it.
#[cfg(test)]
pub(crate) fn check_content_range(said: &str) {
    let wanted = BlobRange {
        start: 10,
        end: 20,
        by_whole: false,
    };
    match bytes_before("fetching", said, wanted, 100) {
        Ok(skip) => assert!(skip <= wanted.start),
        Err(error) => assert_eq!(error.reason, Reason::InvalidImage),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("bytes 0-99/1000", Some((0, Some(1000))))]
    #[case::unknown_total("bytes 5-9/*", Some((5, None)))]
    #[case::backwards("bytes 9-5/1000", None)]
    #[case::behind_the_end("bytes 0-1000/1000", None)]
    #[case::unsatisfied("bytes */1000", None)]
    #[case::other_unit("lines 0-9/10", None)]
    #[case::nothing("", None)]
    #[case::huge("bytes 0-99999999999999999999/1", None)]
    fn content_ranges(#[case] text: &str, #[case] want: Option<(u64, Option<u64>)>) {
        assert_eq!(parse_content_range(text), want);
    }

    #[rstest]
    #[case::exact("bytes 10-19/100", Some(0))]
    #[case::earlier("bytes 4-19/100", Some(6))]
    #[case::later("bytes 11-19/100", None)]
    #[case::another_blob("bytes 10-19/101", None)]
    fn ranges_must_fit(#[case] said: &str, #[case] skip: Option<u64>) {
        let wanted = BlobRange {
            start: 10,
            end: 20,
            by_whole: false,
        };
        let found = bytes_before("fetching", said, wanted, 100);
        assert_eq!(found.as_ref().ok(), skip.as_ref());
        assert!(found.err().is_none_or(|error| error.reason == Reason::InvalidImage));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            if let Some((start, Some(total))) = parse_content_range(&text) {
                prop_assert!(start < total);
            }
        }
    }
}
