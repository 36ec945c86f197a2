use std::io::Read as _;

use serde_json::Value;

use super::*;

fn source() -> Source {
    Source {
        revision: "abc".to_owned(),
        time: 1_700_000_000,
    }
}

fn image() -> Image {
    of_arch(Arch::Amd64, b"program")
}

fn of_arch(arch: Arch, program: &[u8]) -> Image {
    Image::new(&PROGRAMS[0], arch, &source(), program, b"{}").unwrap()
}

fn packed(images: &[Image]) -> Vec<u8> {
    archive(&PROGRAMS[0], &images.iter().collect::<Vec<_>>()).unwrap()
}

fn files_of(archive: &[u8]) -> Vec<(String, Vec<u8>, u32, u64)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        (
            entry.path().unwrap().display().to_string(),
            content,
            header.mode().unwrap(),
            header.mtime().unwrap(),
        )
    });
    entries.collect()
}

fn file(archive: &[u8], path: &str) -> Vec<u8> {
    let files = files_of(archive);
    let found = files.into_iter().find(|(name, ..)| name == path);
    found.unwrap_or_else(|| panic!("no {path} in the archive")).1
}

#[test]
fn the_same_input_gives_the_same_archive() {
    assert_eq!(packed(&[image()]), packed(&[image()]));
    assert_eq!(image().digest(), image().digest());
}

#[test]
fn another_program_gives_another_digest() {
    assert_ne!(image().digest(), of_arch(Arch::Amd64, b"other").digest());
    assert_ne!(image().digest(), of_arch(Arch::Arm64, b"program").digest());
}

#[test]
fn every_blob_is_what_its_name_says() {
    let archive = packed(&[image(), of_arch(Arch::Arm64, b"other")]);
    let blobs = files_of(&archive)
        .into_iter()
        .filter(|(path, ..)| path.starts_with("blobs/sha256/") && !path.ends_with('/'));
    let mut count = 0;
    for (path, content, ..) in blobs {
        assert_eq!(
            layer::digest(&content).replace(':', "/"),
            path.trim_start_matches("blobs/")
        );
        count += 1;
    }
    assert_eq!(
        count, 8,
        "an index; of each image manifest, config and program; and the certificates that they share"
    );
}

#[test]
fn the_controller_is_not_root_and_layers_carry_no_time() {
    let image = image();
    let archive = packed(std::slice::from_ref(&image));
    let index: Value = serde_json::from_slice(&file(&archive, "index.json")).unwrap();
    assert_eq!(index["manifests"][0]["digest"], image.digest());
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
        file(&archive, &format!("blobs/{digest}"))
    };
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    let mut seen = Vec::new();
    for descriptor in manifest["layers"].as_array().unwrap() {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(blob(descriptor).as_slice())
            .read_to_end(&mut unpacked)
            .unwrap();
        for (path, _, mode, time) in files_of(&unpacked) {
            assert_eq!(time, 0, "{path}");
            seen.push((path, mode));
        }
    }
    assert!(seen.contains(&("larder-controller".to_owned(), 0o755)), "{seen:?}");
    assert!(
        seen.contains(&("etc/ssl/certs/ca-certificates.crt".to_owned(), 0o644)),
        "{seen:?}"
    );
    assert!(
        seen.contains(&("usr/share/sbom/larder-controller.cdx.json".to_owned(), 0o644)),
        "{seen:?}"
    );
}

#[test]
fn images_for_two_machines_stand_under_one_name() {
    let archive = packed(&[image(), of_arch(Arch::Arm64, b"other")]);
    let top: Value = serde_json::from_slice(&file(&archive, "index.json")).unwrap();
    let [one] = top["manifests"].as_array().unwrap().as_slice() else {
        panic!("{top}");
    };
    assert_eq!(
        one["annotations"]["io.containerd.image.name"],
        format!("docker.io/library/larder-controller:{}", env!("CARGO_PKG_VERSION"))
    );
    let digest = one["digest"].as_str().unwrap().replace(':', "/");
    let index: Value = serde_json::from_slice(&file(&archive, &format!("blobs/{digest}"))).unwrap();
    let machines: Vec<&Value> = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["platform"]["architecture"])
        .collect();
    assert_eq!(machines, ["amd64", "arm64"]);
}

#[test]
fn the_list_of_parts_names_what_is_linked_and_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let first = sbom::of(&root, "larder-agent-bin", Arch::Amd64).unwrap();
    assert_eq!(first, sbom::of(&root, "larder-agent-bin", Arch::Amd64).unwrap());
    let bom: Value = serde_json::from_slice(&first).unwrap();
    let names: Vec<&str> = bom["components"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|component| component["name"].as_str())
        .collect();
    assert!(
        names.contains(&"larder-runtime") && names.contains(&"rustls"),
        "{names:?}"
    );
    for only_for_tests in ["larder-testkit", "proptest", "rstest"] {
        assert!(!names.contains(&only_for_tests));
    }
    let rustls = bom["components"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "rustls")
        .unwrap();
    assert_eq!(rustls["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert!(
        rustls["licenses"][0]["expression"]
            .as_str()
            .unwrap()
            .contains("Apache-2.0")
    );
}

/// Tests that need programs of `tests/servers/setup`; `make check` leaves them out.
mod real_servers {
    use larder_testkit::{Containerd, ContainerdVersion};

    use super::*;

    #[test]
    fn skopeo_reads_the_archives() {
        let folder = tempfile::tempdir().unwrap();
        let several = packed(&[image(), of_arch(Arch::Arm64, b"other")]);
        for (number, archive) in [packed(&[image()]), several].into_iter().enumerate() {
            let file = folder.path().join(format!("{number}.tar"));
            std::fs::write(&file, archive).unwrap();
            let copied = std::process::Command::new("skopeo")
                .args(["copy", "--all", "--insecure-policy"])
                .arg(format!("oci-archive:{}", file.display()))
                .arg(format!(
                    "dir:{}",
                    folder.path().join(format!("copy-{number}")).display()
                ))
                .output()
                .unwrap();
            assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        }
    }

    /// As an administrator without a registry brings them onto a node, on the oldest containerd that is supported and the newest.
    #[tokio::test]
    async fn containerd_imports_the_archives() {
        let folder = tempfile::tempdir().unwrap();
        let several = packed(&[image(), of_arch(Arch::Arm64, b"other")]);
        let archives = [
            ("one.tar", packed(&[image()]), "linux/amd64"),
            ("several.tar", several, "linux/amd64,linux/arm64"),
        ];
        for version in [ContainerdVersion::V1_6, ContainerdVersion::V2] {
            let containerd = Containerd::start(version).await.unwrap();
            for (name, archive, machines) in &archives {
                let file = folder.path().join(name);
                std::fs::write(&file, archive).unwrap();
                let arguments = ["images".as_ref(), "import".as_ref(), file.as_os_str()];
                let imported = containerd.ctr(arguments).await.unwrap();
                let complaint = String::from_utf8_lossy(&imported.stderr);
                assert!(imported.status.success(), "{version:?} {name}: {complaint}");
                let listed = containerd.ctr(["images", "ls"]).await.unwrap();
                let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
                let reference = format!("docker.io/library/larder-controller:{} ", env!("CARGO_PKG_VERSION"));
                let line = listed.lines().find(|line| line.starts_with(&reference));
                let line = line.unwrap_or_else(|| panic!("{version:?} {name}: {listed}"));
                assert!(line.contains(&format!(" {machines} ")), "{version:?} {name}: {line}");
            }
        }
    }
}
