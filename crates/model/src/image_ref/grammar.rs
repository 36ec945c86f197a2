//! The grammar of image references: how a text is cut into parts and what each part may hold.

use std::net::Ipv6Addr;

use super::ImageRefError;
use crate::Digest;
use crate::digest::is_lower_hex;
use crate::text::quoted;

const DOCKER_HUB: &str = "docker.io";
/// Docker Hub's old host name, still found in many files.
const DOCKER_HUB_OLD: &str = "index.docker.io";
/// Where Docker Hub keeps the images that have no owner.
const OFFICIAL: &str = "library/";

/// Registry, slash and repository together, as Docker's own libraries count them.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// Texts that would fit the grammar, or nearly, but mean something else.
pub(super) fn refuse_what_is_no_reference(text: &str) -> Result<(), ImageRefError> {
    if text.is_empty() {
        return Err(ImageRefError::Empty);
    }
    refuse_scheme(text)?;
    let hex_id = text.len() == 64 && is_lower_hex(text);
    if hex_id || Digest::parse(text).is_ok() {
        return Err(ImageRefError::ImageId(quoted(text)));
    }
    Ok(())
}

pub(super) fn refuse_scheme(text: &str) -> Result<(), ImageRefError> {
    if text.contains("://") {
        Err(ImageRefError::Scheme(quoted(text)))
    } else {
        Ok(())
    }
}

/// Cuts off the host. Without one, or if the first part cannot be a host, it is Docker Hub's.
pub(super) fn split_registry(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some((DOCKER_HUB_OLD, rest)) => (DOCKER_HUB, rest),
        Some((first, rest)) if looks_like_host(first) => (first, rest),
        _ => (DOCKER_HUB, text),
    }
}

fn looks_like_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

pub(super) fn checked_registry(registry: &str) -> Result<&str, ImageRefError> {
    let bad_host = || ImageRefError::Host(quoted(registry));
    if let Some(inner) = registry.strip_prefix('[') {
        let (address, port) = inner.split_once(']').ok_or_else(bad_host)?;
        // Zones and embedded IPv4 addresses are not part of the grammar.
        let plain = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        if !plain || address.parse::<Ipv6Addr>().is_err() {
            return Err(bad_host());
        }
        return match port.strip_prefix(':') {
            Some(port) => check_port(port).map(|()| registry),
            None if port.is_empty() => Ok(registry),
            None => Err(bad_host()),
        };
    }
    let (host, port) = match registry.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (registry, None),
    };
    if !host.split('.').all(is_host_label) {
        return Err(bad_host());
    }
    port.map_or(Ok(()), check_port)?;
    Ok(registry)
}

/// Capital letters are allowed in a host: it is passed on as written, and DNS does not mind.
fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn check_port(port: &str) -> Result<(), ImageRefError> {
    let digits_only = port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(1..) if digits_only => Ok(()),
        _ => Err(ImageRefError::Port(quoted(port))),
    }
}

pub(super) fn checked_repository(registry: &str, path: &str) -> Result<String, ImageRefError> {
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(ImageRefError::Uppercase(quoted(path)));
    }
    if let Some(part) = path.split('/').find(|part| !is_path_part(part)) {
        return Err(ImageRefError::Path(quoted(part)));
    }
    let repository = if registry == DOCKER_HUB && !path.contains('/') {
        format!("{OFFICIAL}{path}")
    } else {
        path.to_owned()
    };
    let found = registry.len() + 1 + repository.len();
    if MAX_NAME < found {
        return Err(ImageRefError::TooLong { found, max: MAX_NAME });
    }
    Ok(repository)
}

/// Letters and digits, with separators only between them: one dot, one or two underscores, any number of hyphens.
fn is_path_part(part: &str) -> bool {
    let alphanumeric = |b: &u8| matches!(b, b'a'..=b'z' | b'0'..=b'9');
    let bytes = part.as_bytes();
    let ends_well = bytes.first().is_some_and(alphanumeric) && bytes.last().is_some_and(alphanumeric);
    ends_well
        && part
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

/// The short name, if it reads back as the same image, else the long one.
///
/// `docker.io/a.b/c` must keep its host, since `a.b/c` names the registry `a.b`; so must a Docker Hub image called
/// `sha256`, whose tag could make it look like an image id.
pub(super) fn familiar_name(registry: &str, repository: &str) -> String {
    if registry != DOCKER_HUB {
        return format!("{registry}/{repository}");
    }
    let short = match repository.strip_prefix(OFFICIAL) {
        Some(official) if !official.contains('/') => official,
        _ => repository,
    };
    let taken_for_host = short.split_once('/').is_some_and(|(first, _)| looks_like_host(first));
    let taken_for_digest = matches!(short, "sha256" | "sha384" | "sha512");
    if taken_for_host || taken_for_digest {
        format!("{registry}/{repository}")
    } else {
        short.to_owned()
    }
}

pub(super) fn check_tag(tag: &str) -> Result<(), ImageRefError> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let well_formed = tag.bytes().next().is_some_and(word) && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'));
    if well_formed && tag.len() <= MAX_TAG {
        Ok(())
    } else {
        Err(ImageRefError::Tag(quoted(tag)))
    }
}
