//! `make demo`: a real Kubernetes control plane on this machine, Larder's kinds in it, and kubectl talking to it.
#![allow(clippy::print_stdout, reason = "this is what people look at")]

use std::path::{Path, PathBuf};

use larder_testkit::{ControlPlane, Kubectl, Options, kubectl};

const CRDS: &str = "deploy/crds";
const EXAMPLES: &str = "deploy/examples";
const REFUSED: &str = "crates/testkit/examples/demo/refused.yaml";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match demo().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            println!("The demonstration ends here: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn demo() -> Outcome<()> {
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
    println!("Starting etcd and kube-apiserver on this machine, for this demonstration only ...");
    let plane = ControlPlane::start(Options::default()).await?;
    println!(
        "Kubernetes {} is up.",
        plane.client()?.apiserver_version().await?.git_version
    );

    let shell = Shell {
        kubeconfig: plane.kubeconfig().to_owned(),
    };
    shell.run("Larder's four kinds:", &["apply", "-f", CRDS]).await?;
    let established = [
        "wait",
        "crd",
        "--all",
        "--for",
        "condition=Established",
        "--timeout=30s",
    ];
    shell.run("Kubernetes accepts them:", &established).await?;
    shell
        .run(
            "The examples of this repository, as their users write them today:",
            &["create", "-R", "-f", EXAMPLES],
        )
        .await?;
    shell
        .run(
            "What kubectl shows:",
            &["get", "imagepulljobs,imagelistpulljobs,imageprepulljobs,nodeimages"],
        )
        .await?;
    let defaults = ["get", "imageprepulljob", "imageprepull-by-label", "-o", "yaml"];
    shell
        .run("Defaults are filled in by the schema, no webhook needed:", &defaults)
        .await?;
    shell
        .refused(
            "A job that names no nodes is refused, with the reason:",
            &["create", "-f", REFUSED],
        )
        .await?;

    drop(plane);
    println!(
        "\nThis is what works today: the API. Nobody carries the jobs out yet: the controller, the node agent and"
    );
    println!("the embedded mode are still to come. Everything started here has been stopped again.");
    Ok(())
}

struct Shell {
    kubeconfig: PathBuf,
}

impl Shell {
    /// Shows a command and what it prints; it must succeed.
    async fn run(&self, title: &str, args: &[&str]) -> Outcome<()> {
        println!("\n{title}\n$ kubectl {}", args.join(" "));
        let output = kubectl(Kubectl::Current, &self.kubeconfig, args).await?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        println!("{}", String::from_utf8_lossy(&output.stdout).trim_end());
        Ok(())
    }

    /// Shows a command that the server must refuse, and what it says.
    async fn refused(&self, title: &str, args: &[&str]) -> Outcome<()> {
        println!("\n{title}\n$ kubectl {}", args.join(" "));
        let output = kubectl(Kubectl::Current, &self.kubeconfig, args).await?;
        if output.status.success() {
            return Err("it was accepted".into());
        }
        println!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(())
    }
}
