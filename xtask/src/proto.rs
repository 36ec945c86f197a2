//! Generates the gRPC code of `larder-runtime-proto` and the message descriptions of `larder-localplane` from their
//! `.proto` files, without `protoc`.
//!
//! The results are checked in, so that a build of Larder does not need this. With `check` nothing is written: it fails
//! when a checked-in file is not what the `.proto` files give.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

/// Every file that is compiled, relative to `crates/runtime-proto/proto`.
const PROTO_FILES: [&str; 8] = [
    "cri.proto",
    "containerd/content.proto",
    "containerd/events.proto",
    "containerd/images.proto",
    "containerd/leases.proto",
    "containerd/snapshots.proto",
    "containerd/types.proto",
    "containerd/version.proto",
];

/// Messages that hold a secret. Their `Debug` is written by hand in the crate and shows none.
const HOLDS_SECRETS: [&str; 1] = [".runtime.v1.AuthConfig"];

/// Fields whose bytes are passed on as they are, without being copied.
const PASSED_ON: &str = ".containerd.services.content.v1.WriteContentRequest.data";

/// The descriptions of the Kubernetes kinds that the embedded API server reads in protobuf.
const KUBERNETES: (&str, &str) = ("crates/localplane/proto", "kubernetes.proto");
const KUBERNETES_DESCRIPTORS: &str = "crates/localplane/src/protobuf/kubernetes.binpb";

/// Writes everything that comes from `.proto` files, or with `check` compares it.
pub(crate) fn generate(root: &Path, check: bool) -> Result<()> {
    grpc_code(root, check)?;
    kubernetes_descriptors(root, check)
}

fn kubernetes_descriptors(root: &Path, check: bool) -> Result<()> {
    let (folder, file) = KUBERNETES;
    let mut compiler = protox::Compiler::new([root.join(folder)])?;
    compiler.include_source_info(false).open_file(file)?;
    let wanted = compiler.encode_file_descriptor_set();
    let path = root.join(KUBERNETES_DESCRIPTORS);
    if fs::read(&path).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    if check {
        bail!("{KUBERNETES_DESCRIPTORS} is out of date: run `cargo xtask codegen` and commit the result");
    }
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    fs::write(&path, wanted).with_context(|| format!("cannot write {}", path.display()))
}

fn grpc_code(root: &Path, check: bool) -> Result<()> {
    let crate_dir = root.join("crates/runtime-proto");
    let checked_in = crate_dir.join("src/generated");
    // A folder of its own for each run: two may run at once.
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let fresh = folder.path().to_owned();

    let include = crate_dir.join("proto");
    let files: Vec<PathBuf> = PROTO_FILES.iter().map(|file| include.join(file)).collect();
    let descriptors = protox::compile(&files, [&include]).context("the .proto files do not compile")?;
    tonic_prost_build::configure()
        .out_dir(&fresh)
        .skip_debug(HOLDS_SECRETS)
        .bytes(PASSED_ON)
        .compile_fds(descriptors)
        .context("cannot generate the gRPC code")?;

    let wanted = rust_files(&fresh)?;
    let present = rust_files(&checked_in).unwrap_or_default();
    if wanted == present {
        return Ok(());
    }
    if check {
        bail!("crates/runtime-proto/src/generated is out of date: run `cargo xtask codegen` and commit the result");
    }
    fs::create_dir_all(&checked_in).with_context(|| format!("cannot create {}", checked_in.display()))?;
    for stale in present.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(checked_in.join(stale)).with_context(|| format!("cannot remove {stale}"))?;
    }
    for (name, text) in &wanted {
        fs::write(checked_in.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

fn rust_files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            files.insert(name.to_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(files)
}
