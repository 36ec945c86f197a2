//! What works without a cluster: lint, crds, completions, help.

use std::path::{Path, PathBuf};

use rstest::{Context, rstest};
use tokio::process::Command;

use crate::larder::{Larder, ended, examples};

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn all_examples_are_fine() {
    let larder = Larder::new();
    let folder = examples();
    let mut command = larder.larder(&["lint"]);
    let files = files_below(&folder);
    command
        .args(files.iter().map(|file| file.strip_prefix(&folder).unwrap()))
        .current_dir(&folder);
    let said = ended(command).await.well();
    assert_eq!(said.matches(": ok\n").count(), files.len());
    insta::assert_snapshot!(said);
}

#[tokio::test]
async fn every_fault_has_its_line() {
    let larder = Larder::new();
    larder.write(
        "faulty.yaml",
        "apiVersion: apps.kruise.io/v1beta1\nkind: ImagePullJob\nmetadata: {name: a}\nspec:\n  parallelism: many\n  colour: blue\n---\n\
         apiVersion: apps.kruise.io/v9\nkind: ImagePullJob\nmetadata: {name: b}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {name: c}\n---\n\
         apiVersion: operations.kubeedge.io/v1alpha2\nkind: ImagePrePullJob\nmetadata: {name: d}\nspec: {}\n---\n\
         apiVersion: apps.kruise.io/v1beta1\nkind: ImagePullJob\nspec: {image: nginx}\n",
    );
    let ended = larder.run(&["lint", "faulty.yaml"]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    insta::assert_snapshot!(ended.stdout);
}

/// What no rule of the CRDs can see is read as the controller reads it.
#[rstest]
#[case::zone("refreshSchedule: '0 3 * * *', refreshTimeZone: Europe/Atlantis", "Europe/Atlantis")]
#[case::never(
    "refreshSchedule: '0 3 30 2 *'",
    "never runs: none of its months has one of its days"
)]
#[case::field(
    "refreshSchedule: '0 25 * * *'",
    "refreshSchedule: the hour must be *, a number from 0 to 23"
)]
#[case::window(
    "windows: [{from: '22:00', to: '06:00', timeZone: Europe/Atlantis}]",
    "Europe/Atlantis"
)]
#[tokio::test]
async fn times_that_cannot_be_meant_are_named(#[case] fields: &str, #[case] why: &str) {
    let larder = Larder::new();
    for (kind, images) in [
        ("ImagePullJob", "image: nginx"),
        ("ImageListPullJob", "images: [nginx]"),
    ] {
        let spec = format!("{{{images}, completionPolicy: {{type: Never}}, {fields}}}");
        let job = format!("apiVersion: apps.kruise.io/v1beta1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n");
        larder.write("job.yaml", &job);
        let ended = larder.run(&["lint", "job.yaml"]).await;
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stdout.contains(why), "{}", ended.stdout);
    }
}

/// KubeEdge's guide: full-width colons, and no space after the colon of a label.
const FULL_WIDTH: &str = "\
apiVersion: operations.kubeedge.io/v1alpha1
kind: ImagePrePullJob
metadata:
  name: imageprepull-example
  labels:
    description:ImagePrePullLabel
spec:
  imagePrePullTemplate：
    images:
      - image1
    nodes：
      - edgenode1
    checkItems:
      - \"disk\"
    failureTolerate: \"0.3\"
";

/// KubeEdge's proposal: capital letters in the name, one image that is no list, and a misspelled repo.
const PROPOSAL: &str = "\
apiVersion: operations.kubeedge.io/v1alpha1
kind: ImagePrePullJob
metadata:
  name: ImagePrepullExample
spec:
  imagePrePullTemplate:
    images:
      name: image1
      registry: harbor.docker.hub
      respo: jili
      tag: example:v1.0.0
    nodes:
      - Node1
";

/// OpenKruise's guide in Chinese, copied without its indentation.
const FLAT: &str = "\
apiVersion: apps.kruise.io/v1alpha1
kind: ImagePullJob
metadata:
name: job-with-always
spec:
image: nginx:1.9.1 # [required] 完整的镜像名 name:tag
parallelism: 10
selector:
names:
- node-1
matchLabels:
node-type: xxx
completionPolicy:
type: Always
";

/// OpenKruise's older guide: a podSelector without matchLabels, and lines that are left out.
const POD_SELECTOR: &str = "\
apiVersion: apps.kruise.io/v1alpha1
kind: ImagePullJob
metadata:
  name: job-by-pods
spec:
  ...
  image: nginx:1.9.1
  podSelector:
    pod-label: xxx
  pulSecrets: []
";

/// Mistakes that are known from the documents of other projects, each with what to write instead.
#[rstest]
#[case::full_width(FULL_WIDTH, 1)]
#[case::proposal(PROPOSAL, 1)]
#[case::flat(FLAT, 1)]
#[case::pod_selector(POD_SELECTOR, 1)]
#[case::hints_alone(&PROPOSAL.replace("ImagePrepullExample", "example").replace("      name", "      - name").replace("\n      r", "\n        r").replace("      tag", "        tag"), 0)]
#[tokio::test]
async fn copied_mistakes_have_suggestions(#[context] context: Context, #[case] text: &str, #[case] code: i32) {
    let larder = Larder::new();
    larder.write("job.yaml", text);
    let ended = larder.run(&["lint", "job.yaml"]).await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(code), ""),
        "{}",
        ended.stdout
    );
    let name = format!("lint_{}", context.description.unwrap_or_default());
    insta::assert_snapshot!(name, ended.stdout);
}

#[tokio::test]
async fn a_folder_and_a_key_that_stands_twice_are_said() {
    let larder = Larder::new();
    std::fs::create_dir(larder.home.path().join("jobs")).unwrap();
    assert_eq!(
        larder.run(&["lint", "jobs"]).await.badly(2),
        "jobs is a folder; name the files in it, as in jobs/*.yaml"
    );
    larder.write("twice.yaml", "kind: A\nkind: B\n");
    assert_eq!(
        larder.run(&["lint", "twice.yaml"]).await.badly(2),
        "twice.yaml is not YAML: line 2 column 1: duplicate mapping key: kind; keep one of them"
    );
}

#[tokio::test]
async fn standard_input_is_a_file_too() {
    let larder = Larder::new();
    let program = env!("CARGO_BIN_EXE_larder");
    let mut command = larder.command("bash");
    command.args([
        "-c",
        &format!("echo '{{apiVersion: v1, kind: Secret, metadata: {{name: c}}}}' | {program} lint -"),
    ]);
    let said = ended(command).await.well();
    assert_eq!(
        said,
        "standard input: Secret c: not checked, it is none of Larder's kinds\n"
    );
}

#[tokio::test]
async fn the_crds_are_those_of_the_repository() {
    let larder = Larder::new();
    let said = larder.run(&["crds"]).await.well();
    let folder = examples().join("../crds");
    let files = files_below(&folder);
    assert_eq!(said.matches("---\n").count(), files.len());
    for file in files {
        // The file begins with a comment on where it comes from.
        let text = std::fs::read_to_string(&file).unwrap();
        let (_, body) = text.split_once("apiVersion: ").unwrap();
        assert!(said.contains(body), "{}", file.display());
    }
}

#[rstest]
#[case::bash("bash", "complete -F _larder")]
#[case::zsh("zsh", "#compdef larder")]
#[case::fish("fish", "complete -c larder")]
#[tokio::test]
async fn completions_for(#[case] shell: &str, #[case] holds: &str) {
    let said = Larder::new().run(&["completions", shell]).await.well();
    assert!(said.contains(holds), "{said}");
}

#[tokio::test]
async fn a_pipe_that_closes_early_is_no_error() {
    let larder = Larder::new();
    let mut command = larder.command("bash");
    let program = env!("CARGO_BIN_EXE_larder");
    command.args(["-o", "pipefail", "-c", &format!("{program} crds | head -n 1")]);
    assert_eq!(ended(command).await.well(), "---\n");
}

#[tokio::test]
async fn help_lists_the_commands() {
    let said = Larder::new().run(&["--help"]).await.well();
    insta::assert_snapshot!(said);
}

#[tokio::test]
async fn nothing_typed_shows_the_help() {
    let ended = Larder::new().run(&[]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(
        ended.stderr.contains("Usage: larder [OPTIONS] <COMMAND>"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn as_a_plugin_it_is_called_kubectl_larder() {
    let larder = Larder::new();
    let plugin = larder.home.path().join("kubectl-larder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_larder"), &plugin).unwrap();
    let mut command: Command = larder.command(&plugin);
    command.args(["run", "--help"]);
    let said = ended(command).await.well();
    assert!(said.contains("Usage: kubectl larder run "), "{said}");
}
