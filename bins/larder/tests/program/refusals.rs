//! What goes wrong without a cluster: one sentence each, the documented exit code, no backtrace.

use rstest::rstest;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::larder::{Larder, ended};

/// A kubeconfig for an address without a server.
const NOBODY: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
  "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
  "users": [{"name": "u", "user": {"token": "t"}}],
  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"#;

fn surroundings() -> Larder {
    let larder = Larder::new();
    larder.write("nobody.json", NOBODY);
    larder.write("broken.yaml", "kind: [unclosed");
    larder.write("plain.yaml", "colour: blue\n");
    larder.write("empty.yaml", "");
    larder.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n");
    larder.write_job("job", "nginx:1", "");
    larder
}

#[rstest]
#[case::flag(&["status", "--fast"], 2, "unexpected argument '--fast' found; usage: larder status [OPTIONS] [JOB]")]
#[case::no_file_given(&["run"], 2, "the following required arguments were not provided: <--filename <FILE>|--images-of <SOURCE>>; usage: larder run <--filename <FILE>|--images-of <SOURCE>>")]
#[case::file_and_images_of(&["run", "-f", "job.yaml", "--images-of", "job.yaml"], 2, "the argument '--filename <FILE>' cannot be used with '--images-of <SOURCE>'; usage: larder run <--filename <FILE>|--images-of <SOURCE>>")]
#[case::images_of_no_file(&["run", "--images-of", "gone.yaml"], 2, "gone.yaml cannot be read: No such file or directory (os error 2)")]
#[case::images_of_neither(&["run", "--images-of", "rollout/web"], 2, "rollout/web is neither a file nor KIND/NAME; the kinds are deployment, ")]
#[case::images_of_broken(&["run", "--images-of", "broken.yaml"], 2, "broken.yaml is not YAML: ")]
#[case::images_of_nothing(&["run", "--images-of", "secret.yaml", "--kubeconfig", "nobody.json"], 2, "secret.yaml: no object has pods; these were found: Secret 1")]
#[case::images_of_unreachable(&["run", "--images-of", "deployment/web", "--kubeconfig", "nobody.json"], 3, "reading deployment web: the API server cannot be reached: ")]
#[case::duration(&["run", "-f", "job.yaml", "--timeout", "soon"], 2, "invalid value 'soon' for '--timeout <DURATION>': `soon` is no unit; use s, m or h, as in 5m; see: larder --help")]
#[case::image(&["pull", "Not/An:Image:At:All"], 2, "invalid value 'Not/An:Image:At:All' for '<IMAGE>...': ")]
#[case::no_file(&["run", "-f", "gone.yaml"], 2, "gone.yaml cannot be read: No such file or directory (os error 2)")]
#[case::broken_yaml(&["run", "-f", "broken.yaml"], 2, "broken.yaml is not YAML: ")]
#[case::no_object(&["lint", "plain.yaml"], 2, "plain.yaml: not a Kubernetes object; apiVersion and kind must be given")]
#[case::nothing(&["lint", "empty.yaml"], 2, "empty.yaml holds no object")]
#[case::no_cluster(&["status"], 2, "no cluster is configured; give --kubeconfig FILE, or set KUBECONFIG, or try: larder up")]
#[case::no_kubeconfig(&["status", "--kubeconfig", "gone"], 2, "the kubeconfig gone cannot be used: failed to read kubeconfig from")]
#[case::no_context(&["status", "--kubeconfig", "nobody.json", "--context", "x"], 2, "the kubeconfig nobody.json has no context \"x\"; there are: c")]
#[case::too_many_nodes(&["up", "--nodes", "9999999999", "--data", "unused"], 2, "9999999999 nodes need about 20000000254 open files, and this process may have ")]
#[case::unreachable(&["status", "--kubeconfig", "nobody.json"], 3, "reading jobs: the API server cannot be reached: Connection refused (os error 111); check --kubeconfig and --context")]
#[case::run_unreachable(&["run", "-f", "job.yaml", "--kubeconfig", "nobody.json"], 3, "job.yaml: creating ImagePullJob job: the API server cannot be reached: ")]
#[case::why_unreachable(&["why", "job", "--kubeconfig", "nobody.json"], 3, "reading jobs: the API server cannot be reached: ")]
#[case::plan_unreachable(&["plan", "-f", "job.yaml", "--kubeconfig", "nobody.json"], 3, "job.yaml: creating ImagePullJob job: the API server cannot be reached: ")]
#[case::nothing_to_plan(&["plan", "-f", "secret.yaml", "--kubeconfig", "nobody.json"], 2, "the file holds no job; give an ImagePullJob, ImageListPullJob or ImagePrePullJob")]
#[case::doctor_unreachable(&["doctor", "--kubeconfig", "nobody.json"], 3, "asking the API server for its version: the API server cannot be reached: Connection refused (os error 111); check --kubeconfig and --context")]
#[case::port_and_address(&["up", "--port", "1", "--listen", "127.0.0.1:1"], 2, "the argument '--port <PORT>' cannot be used with '--listen <ADDRESS>'")]
#[case::no_runtime(&["pull", "nginx:1", "--runtime-endpoint", "unix:///nobody.sock"], 3, "the runtime at /nobody.sock does not answer: ")]
#[case::folder_is_a_file(&["pull", "nginx:1", "--to", "job.yaml"], 2, "the folder job.yaml cannot be used: ")]
#[case::data_is_a_file(&["up", "--data", "job.yaml"], 2, "the data folder cannot be used: ")]
#[case::open_to_the_world(&["up", "--data", "d", "--listen", "0.0.0.0:0"], 2, "the embedded API server cannot listen: 0.0.0.0:0 is not a loopback address; the embedded API is served on loopback only; choose another address with --listen")]
#[case::log_filter(&["up", "--data", "d", "--log", "larder=loud"], 2, "`larder=loud` is no log filter; ")]
#[tokio::test]
async fn one_sentence_and_the_documented_code(#[case] arguments: &[&str], #[case] code: i32, #[case] says: &str) {
    let larder = surroundings();
    let sentence = larder.run(arguments).await.badly(code);
    assert!(sentence.starts_with(says), "{sentence}");
}

#[tokio::test]
async fn a_kubeconfig_variable_that_leads_nowhere_is_named() {
    let larder = surroundings();
    let mut command = larder.larder(&["status"]);
    command.env("KUBECONFIG", "gone");
    let sentence = ended(command).await.badly(2);
    assert!(
        sentence.starts_with("the kubeconfig that KUBECONFIG names cannot be used: "),
        "{sentence}"
    );
}

/// Variables that are set and empty, as scripts leave them.
#[tokio::test]
async fn an_empty_home_is_no_home() {
    let larder = surroundings();
    let mut command = larder.larder(&["up"]);
    command.env("HOME", "").env("LARDER_DATA", "").env("XDG_DATA_HOME", "");
    assert_eq!(
        ended(command).await.badly(2),
        "there is no home directory to keep data in; give --data DIR"
    );
    let mut command = larder.larder(&["pull", "127.0.0.1:1/app:v1", "--to", "images", "--retries", "0"]);
    command.env("HOME", "").env("DOCKER_CONFIG", "");
    let sentence = ended(command).await.badly(1);
    assert!(sentence.contains("Connection refused"), "{sentence}");
}

#[tokio::test]
async fn a_data_folder_that_others_can_enter_is_refused_with_the_command_that_fixes_it() {
    let larder = surroundings();
    let data = larder.home.path().canonicalize().unwrap().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let sentence = larder.run(&["up", "--data", "data"]).await.badly(2);
    assert_eq!(
        sentence,
        format!(
            "other users can enter the directory {path} (mode 0755), which holds secrets; run: chmod 700 {path}",
            path = data.display()
        )
    );
}

/// A private folder of data, empty.
fn private_data(larder: &Larder) -> std::path::PathBuf {
    let data = larder.home.path().canonicalize().unwrap().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    data
}

#[rstest]
#[tokio::test]
async fn a_link_in_the_data_folder_is_refused_and_not_followed(
    #[values("nodes", "nodes/node-2", "nodes/node-2/images", "nodes/node-2/state")] name: &str,
) {
    let larder = surroundings();
    let data = private_data(&larder);
    let elsewhere = larder.home.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let link = data.join(name);
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let sentence = larder.run(&["up", "--data", "data", "--nodes", "2"]).await.badly(2);
    let refused = format!(
        "{} is a symbolic link, and links are not followed here; ",
        link.display()
    );
    assert!(sentence.contains(&refused), "{sentence}");
    assert_eq!(
        std::fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "nothing is written there"
    );
}

/// To open a pipe would wait for its other end, for ever.
#[rstest]
#[tokio::test]
async fn a_named_pipe_in_the_data_folder_is_refused(
    #[values(
        "lock",
        "larder.log",
        "token",
        "server.crt",
        "server.key",
        "objects.redb",
        "nodes/node-2/state/node.key"
    )]
    name: &str,
) {
    let larder = surroundings();
    let pipe = private_data(&larder).join(name);
    std::fs::create_dir_all(pipe.parent().unwrap()).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let sentence = larder.run(&["up", "--data", "data", "--nodes", "2"]).await.badly(2);
    assert!(sentence.contains(&pipe.display().to_string()), "{sentence}");
    assert!(sentence.contains("it is not a regular file"), "{sentence}");
    assert!(sentence.contains("remove it"), "{sentence}");
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_named_with_what_to_do() {
    let larder = surroundings();
    let file = private_data(&larder).join("objects.redb");
    larder.write("data/objects.redb", &"not a database".repeat(1000));
    let sentence = larder.run(&["up", "--data", "data"]).await.badly(2);
    assert!(
        sentence.starts_with(&format!("{} cannot be read: ", file.display())),
        "{sentence}"
    );
    assert!(
        sentence.ends_with(
            "; move the file away to begin anew (jobs are forgotten, images stay), or put back a copy of it"
        ),
        "{sentence}"
    );
}

/// A file that is no kubeconfig is described in one line, however much its reader has to say.
#[tokio::test]
async fn a_broken_kubeconfig_is_one_sentence() {
    let larder = surroundings();
    let sentence = larder.run(&["status", "--kubeconfig", "broken.yaml"]).await.badly(2);
    assert!(
        sentence.starts_with("the kubeconfig broken.yaml cannot be used: "),
        "{sentence}"
    );
}
