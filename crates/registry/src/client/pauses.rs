//! Until when registries want no requests. A `Retry-After` counts for every request to the host that sent it with the same
//! login, not only for the one that was answered with it: registries limit accounts, and blob stores limit by themselves.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::fmt::rfc2822;
use reqwest::Response;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use tokio::time::Instant;

/// Longest pause that a registry is granted; what asks for more is asked again after this.
const MAX_PAUSE: Duration = Duration::from_hours(1);

/// Who is left alone, and as whom it was asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PauseKey {
    /// Scheme, host and port that answered, behind redirects.
    pub(super) origin: String,
    /// User name; empty without a login.
    pub(super) login: String,
}

#[derive(Default)]
pub(super) struct Pauses(Mutex<BTreeMap<PauseKey, Instant>>);

impl Pauses {
    /// Takes note that a host asked to be left alone for so long.
    pub(super) fn add(&self, key: PauseKey, wait: Duration) {
        let until = Instant::now() + wait.min(MAX_PAUSE);
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pauses.entry(key).or_insert(until);
        *known = until.max(*known);
    }

    /// How long a host still wants to be left alone.
    pub(super) fn left(&self, key: &PauseKey) -> Option<Duration> {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        pauses.retain(|_, until| now < *until);
        pauses.get(key).map(|until| *until - now)
    }
}

/// How long an answer asks to wait.
pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    from_headers(response.headers())
}

/// Seconds, or a date. A date is compared with the date of the same answer: the own clock may be wrong.
fn from_headers(headers: &HeaderMap) -> Option<Duration> {
    let asked = text(headers, &RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let wait = seconds_of(asked)?.saturating_sub(seconds_of(text(headers, &DATE)?)?);
    // A date that is over asks for no wait.
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or_default()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn seconds_of(date: &str) -> Option<i64> {
    Some(rfc2822::parse(date).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SENT: &str = "Wed, 21 Oct 2015 07:28:00 GMT";

    #[rstest]
    #[case::seconds("40", Some(SENT), Some(40))]
    #[case::seconds_without_a_date("40", None, Some(40))]
    #[case::date("Wed, 21 Oct 2015 07:29:30 GMT", Some(SENT), Some(90))]
    #[case::date_that_is_over("Wed, 21 Oct 2015 07:27:00 GMT", Some(SENT), Some(0))]
    #[case::date_without_a_date("Wed, 21 Oct 2015 07:29:30 GMT", None, None)]
    #[case::negative("-1", Some(SENT), None)]
    #[case::nonsense("soon", Some(SENT), None)]
    fn waits_that_are_asked_for(#[case] asked: &str, #[case] sent: Option<&str>, #[case] want: Option<u64>) {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, asked.parse().unwrap());
        if let Some(sent) = sent {
            headers.insert(DATE, sent.parse().unwrap());
        }
        assert_eq!(from_headers(&headers), want.map(Duration::from_secs));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_for_one_host_and_one_login_and_ends() {
        let key = |origin: &str, login: &str| PauseKey {
            origin: origin.to_owned(),
            login: login.to_owned(),
        };
        let pauses = Pauses::default();
        pauses.add(key("https://a.example", "ann"), Duration::from_secs(40));
        pauses.add(key("https://a.example", "ann"), Duration::from_secs(10));
        assert_eq!(pauses.left(&key("https://a.example", "bob")), None);
        assert_eq!(pauses.left(&key("https://b.example", "ann")), None);
        assert_eq!(
            pauses.left(&key("https://a.example", "ann")),
            Some(Duration::from_secs(40))
        );
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(pauses.left(&key("https://a.example", "ann")), None);
    }
}
