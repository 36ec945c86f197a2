//! Deletes blobs that no entry of `index.json` leads to.

use std::{collections::HashSet, fs, path::PathBuf};

use larder_registry::manifest::{Content, Descriptor, Document};
use tracing::debug;

use super::files::{Files, children, failed};
use crate::RuntimeError;

/// Deletes what is not needed, and half-finished downloads that nobody works on. Does nothing while pulls run: what
/// they fetched is named by no entry yet. The next sweep finds what this one leaves.
pub(super) fn sweep(files: &Files) -> Result<(), RuntimeError> {
    let Some(_no_pulls) = files.lock_for_deleting()? else {
        debug!("clean-up of the image layout waits for running pulls");
        return Ok(());
    };
    let index = files.index()?;
    let mut needed = HashSet::new();
    for entry in index.entries() {
        let target = entry.target();
        mark(files, &target.shown, &mut needed);
        mark(files, &target.source, &mut needed);
    }
    for folder in children(&files.folder().join("blobs"))? {
        for blob in children(&folder)? {
            if !needed.contains(&blob) {
                fs::remove_file(&blob).map_err(failed("delete an unused blob", &blob))?;
            }
        }
    }
    for partial in children(&files.partials())? {
        fs::remove_file(&partial).map_err(failed("delete a half-finished blob", &partial))?;
    }
    Ok(())
}

/// Notes a blob and everything it leads to. Documents of other kinds, that others put there, lead nowhere we know of.
fn mark(files: &Files, descriptor: &Descriptor, needed: &mut HashSet<PathBuf>) {
    if !needed.insert(files.blob(&descriptor.digest)) {
        return;
    }
    let Some(bytes) = files.read_document(descriptor) else {
        return;
    };
    let document = Document {
        descriptor: descriptor.clone(),
        bytes,
    };
    match document.content() {
        Ok(Content::Manifest(manifest)) => {
            for blob in manifest.layers.iter().chain([&manifest.config]) {
                needed.insert(files.blob(&blob.digest));
            }
        }
        Ok(Content::Index(builds)) => builds.iter().for_each(|build| mark(files, build, needed)),
        Err(_) => {}
    }
}
