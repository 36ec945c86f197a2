//! What a registry has answered, as its access log tells it.

/// One answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The method, for example `GET`.
    pub method: String,
    /// The path without its query, for example `/v2/app/manifests/v1`.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
}

impl Served {
    /// Reads a line in Apache's combined format; other lines are none.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (_, request) = line.split_once("] \"")?;
        let (request, answer) = request.split_once("\" ")?;
        let mut words = request.split(' ');
        let (method, address) = (words.next()?, words.next()?);
        let path = address.split('?').next()?;
        let status = answer.split(' ').next()?.parse().ok()?;
        Some(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_access_log() {
        let line = r#"127.0.0.1 - - [15/Nov/2026:12:55:40 +0000] "HEAD /v2/app/manifests/v1?ns=docker.io HTTP/1.1" 401 95 "" "containerd/2.4""#;
        let want = Served {
            method: "HEAD".into(),
            path: "/v2/app/manifests/v1".into(),
            status: 401,
        };
        assert_eq!(Served::read(line), Some(want));
    }

    #[test]
    fn other_lines_are_left_out() {
        assert_eq!(
            Served::read(r#"time="2026-11-15T12:55:40Z" level=warning msg="no secret""#),
            None
        );
    }
}
