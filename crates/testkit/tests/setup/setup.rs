//! From an empty cache, in every order, alone, interrupted, at once, again.

use std::time::Duration;

use larder_testkit::wait_until;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::machine::{Machine, text};
use crate::steps::{all_names, names, programs_of};

/// What a finished set-up leaves in the cache folder.
const CACHE: [&str; 3] = ["servers", "setup.lock", "tools"];

#[test]
fn the_steps_are_those_that_are_tested() {
    let printed = Machine::bare().set_up(&["steps"]);
    assert_eq!(printed.lines().collect::<Vec<_>>(), all_names());
}

#[test]
fn each_step_works_alone_from_an_empty_cache() {
    for step in all_names() {
        let machine = Machine::bare();
        machine.set_up(&["only", step]);
        assert_eq!(machine.programs(), programs_of(&[step]), "{step}");
        assert_eq!(machine.cache_entries(), CACHE, "{step}");
    }
}

/// A step once wrote its program where another had unpacked a folder of that name: on a used machine nothing showed.
#[rstest]
#[case::in_order(false)]
#[case::backwards(true)]
fn all_steps_work_together_from_an_empty_cache(#[case] backwards: bool) {
    let machine = Machine::bare();
    let mut arguments = vec![];
    if backwards {
        arguments = names();
        arguments.push("only");
        arguments.reverse();
    }
    machine.set_up(&arguments);
    assert_eq!(machine.programs(), programs_of(&names()));
    assert_eq!(machine.cache_entries(), CACHE);
}

#[test]
fn a_second_run_does_nothing() {
    let machine = Machine::bare();
    machine.set_up(&[]);
    assert!(!machine.calls().is_empty());
    for tool in ["go", "cargo", "apt-get", "dpkg"] {
        machine.uninstall(tool);
    }
    let output = machine.setup(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        (String::new(), String::new())
    );
    assert_eq!(machine.calls(), [""; 0]);
}

#[rstest]
#[case::killed(Signal::KILL)]
#[case::terminated(Signal::TERM)]
#[tokio::test]
async fn an_interrupted_set_up_leaves_nothing_half_done(#[case] signal: Signal) {
    let machine = Machine::bare();
    machine.set("pause-at-kubelet", "");
    let mut setup = machine.script("setup", &[]).spawn().unwrap();
    wait_until(Duration::from_mins(1), "the build of kubelet", async || {
        machine.path("paused").exists()
    })
    .await
    .unwrap();
    kill_process_group(Pid::from_raw(setup.id().cast_signed()).unwrap(), signal).unwrap();
    assert!(!setup.wait().unwrap().success());
    let before = machine.programs();
    assert!(before.values().all(|content| content != "half"), "{before:?}");
    assert!(
        before.contains_key("servers/kubernetes-1.36.3/kube-apiserver"),
        "{before:?}"
    );
    assert!(!before.contains_key("servers/kubernetes-1.36.3/kubelet"), "{before:?}");

    machine.unset("pause-at-kubelet");
    machine.calls();
    machine.set_up(&[]);
    assert_eq!(machine.programs(), programs_of(&names()));
    assert_eq!(machine.cache_entries(), CACHE);
    let again = machine.calls();
    assert!(
        !again.iter().any(|call| call.ends_with("cmd/kube-controller-manager")),
        "{again:?}"
    );
}

#[test]
fn a_failed_step_says_why_and_leaves_nothing() {
    let machine = Machine::bare();
    machine.set("fail-at-helm", "");
    let output = machine.setup(&["only", "etcd-debian", "helm", "pause"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("go: helm does not compile"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(machine.programs(), programs_of(&["etcd-debian"]));
    assert_eq!(machine.cache_entries(), CACHE);
}

#[test]
fn two_set_ups_at_once_do_everything_once() {
    let machine = Machine::bare();
    let both = [(); 2].map(|()| machine.script("setup", &[]).spawn().unwrap());
    for setup in both {
        let output = setup.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_eq!(machine.programs(), programs_of(&names()));
    let calls = machine.calls();
    let builds = calls.iter().filter(|call| call.ends_with("cmd/kubelet"));
    assert_eq!(builds.count(), 1, "{calls:?}");
}

#[test]
fn clean_removes_what_was_made() {
    let machine = Machine::bare();
    machine.set_up(&["only", "pause", "cargo-deny"]);
    machine.set_up(&["clean"]);
    assert_eq!(machine.cache_entries(), ["setup.lock"]);
}

#[test]
fn unknown_words_are_refused() {
    let machine = Machine::bare();
    for (arguments, complaint) in [
        (&["only", "etdc"][..], "unknown step 'etdc'"),
        (&["only", "kubernetes-1.26.0"], "unknown step 'kubernetes-1.26.0'"),
        (&["lint"], "unknown argument 'lint'"),
    ] {
        let output = machine.setup(arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(complaint), "{}", text(&output.stderr));
    }
}
