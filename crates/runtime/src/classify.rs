//! From a runtime's words to one of the closed set of reasons.
//!
//! Runtimes put nearly every failure of a pull into the gRPC code `Unknown` and tell the rest in prose, so the prose is
//! what we read. The order of the rules matters more than their number: texts are chains, and a chain that ends in a
//! network failure often begins with words about authorization, or ends in a generic `not found`.

use larder_model::Reason;
use tonic::Code;

/// Words that give a reason away, in the order in which they are looked for.
const RULES: &[(Reason, &[&str])] = &[
    (
        Reason::RuntimeDown,
        &[
            "server is not initialized yet",
            "cri service is not ready",
            "cannot connect to the docker daemon",
        ],
    ),
    (
        Reason::NoSpace,
        &["no space left on device", "disk quota exceeded", "not enough space"],
    ),
    (
        Reason::InvalidReference,
        &[
            "invalid reference format",
            "failed to parse image reference",
            "could not parse reference",
            "repository name must be lowercase",
            "repository name must be canonical",
        ],
    ),
    (
        Reason::RateLimited,
        &[
            "too many requests",
            "toomanyrequests",
            "rate limit",
            "status code 429",
            "from registry 429",
        ],
    ),
    // A name server that does not answer is no network failure of the registry.
    (
        Reason::Dns,
        &[
            "no such host",
            "server misbehaving",
            "temporary failure in name resolution",
            "name or service not known",
            "dial tcp: lookup ",
        ],
    ),
    // Before Tls: this one is the network's fault.
    (Reason::Unreachable, &["tls handshake timeout"]),
    (
        Reason::Tls,
        &[
            "x509:",
            "tls:",
            "certificate",
            "server gave http response to https client",
            "http: server gave http",
            "malformed http response",
        ],
    ),
    (
        Reason::Unreachable,
        &[
            "connection refused",
            "connection reset",
            "connection timed out",
            "i/o timeout",
            "no route to host",
            "network is unreachable",
            "host is down",
            "broken pipe",
            "unexpected eof",
            ": eof",
            "client.timeout exceeded",
            "server closed idle connection",
            "use of closed network connection",
            "stream error:",
            "registryunavailable",
            "500 internal server error",
            "502 bad gateway",
            "503 service unavailable",
            "504 gateway timeout",
            "504 gateway time-out",
            "status code 500",
            "status code 502",
            "status code 503",
            "status code 504",
        ],
    ),
    // Before NotFound: registries deny repositories that do not exist, and say "does not exist or may require
    // authorization"; only the registry knows which.
    (
        Reason::AuthDenied,
        &[
            "unauthorized",
            "forbidden",
            "access denied",
            "denied: ",
            "is denied",
            "insufficient_scope",
            "authorization failed",
            "authentication required",
            "no basic auth credentials",
            "incorrect username or password",
            "status code 401",
            "status code 403",
        ],
    ),
    // Before NotFound: containerd ends this text with "not found".
    (
        Reason::NoPlatform,
        &[
            "no match for platform",
            "no matching manifest for",
            "no image found in manifest list for",
            "no image found in image index for",
            "no child with platform",
            "does not match the specified platform",
        ],
    ),
    // The token service, or a proxy before it, sent a page; the parser's words would look like those of a manifest below.
    (Reason::Unreachable, &["unable to decode token response"]),
    (
        Reason::InvalidImage,
        &[
            "unexpected commit digest",
            "unexpected commit size",
            "read past expected size",
            "failed size validation",
            "does not match the digest",
            "digest did not match",
            "verification failed for digest",
            "invalid checksum digest",
            "unsupported digest algorithm",
            "invalid desc sha",
            "invalid character",
            "unexpected end of json input",
            "cannot unmarshal",
            "reports content size of zero",
            "number of layers and diffids don't match",
            "mismatched image rootfs and manifest layers",
            "too many descriptors",
        ],
    ),
    // Something that is missing on this node, not in the registry.
    (
        Reason::Internal,
        &[
            "content store: content digest",
            "failed to stat snapshot",
            "snapshotter not found",
            "lease does not exist",
        ],
    ),
    (
        Reason::NotFound,
        &[
            "not found",
            "manifest unknown",
            "name unknown",
            "name_unknown",
            "manifest_unknown",
            "blob unknown",
            "repository does not exist",
            "status code 404",
        ],
    ),
    // We give up a pull by dropping it and never see how it ends: a runtime that reports a cancelled pull gave it up
    // itself, because no bytes came for too long (containerd's image_pull_progress_timeout) or because it stops.
    (Reason::Stalled, &["context canceled"]),
    (
        Reason::Unreachable,
        &["context deadline exceeded", "stopped after 10 redirects"],
    ),
];

/// What to do, beyond what the reason says. A digest that is not met is no fault of the node.
pub(crate) fn hint(message: &str) -> Option<&'static str> {
    let damaged = [
        "unexpected commit digest",
        "unexpected commit size",
        "read past expected size",
        "does not match the digest",
    ];
    let damaged = damaged.iter().any(|words| message.contains(words));
    damaged.then_some(
        "what came is not what the digest says: push the image again, or clear the cache or proxy between node and registry",
    )
}

/// The reason behind an answer of the runtime. (A broken connection to the runtime itself is not decided here.)
pub(crate) fn classify(code: Code, message: &str) -> Reason {
    // A proxy's own page in place of a manifest. Its type looks like a name, and containerd ends the text with "not found".
    if message.contains("unexpected media type text/") {
        return Reason::Unreachable;
    }
    let text = without_names(message).to_lowercase();
    // A file that may not be read is no registry that denies; the words would look like one below.
    let text = text.replace("permission denied", "");
    let by_words = RULES
        .iter()
        .find(|(_, words)| words.iter().any(|word| text.contains(word)));
    match by_words {
        Some((reason, _)) => *reason,
        None => by_code(code, &text),
    }
}

fn by_code(code: Code, text: &str) -> Reason {
    match code {
        Code::Unauthenticated | Code::PermissionDenied => Reason::AuthDenied,
        Code::NotFound => Reason::NotFound,
        Code::Unavailable => Reason::Unreachable,
        Code::DeadlineExceeded => Reason::Timeout,
        // tonic's own deadline, which it reports like this.
        Code::Cancelled if text.contains("timeout expired") => Reason::Timeout,
        Code::Cancelled | Code::Aborted => Reason::Stalled,
        _ => Reason::Internal,
    }
}

/// The text without image names, addresses and paths, which may hold any word: what stands in double quotes, and words
/// with a slash in them.
fn without_names(message: &str) -> String {
    let outside_quotes = message.split('"').step_by(2);
    let mut text = String::with_capacity(message.len());
    for word in outside_quotes.flat_map(str::split_whitespace) {
        let is_name = word.contains('/') && word != "i/o";
        match (is_name, word.ends_with(':')) {
            (false, _) => text.push_str(word),
            (true, true) => text.push(':'),
            (true, false) => continue,
        }
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests;
