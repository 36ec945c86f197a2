//! A credential-provider plugin of the kubelet: reads a request, answers for the registries of its flag `--registry`, with the
//! user of `--user` and the password of the variable PASSWORD, as its configuration sets them. For other images it has none.
//!
//! The standard library alone, and static: the agent's image has no libraries.

use std::io::Read as _;

const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

fn main() {
    let flag = |name: &str| std::env::args().find_map(|argument| argument.strip_prefix(name).map(str::to_owned));
    let (Some(registry), Some(user)) = (flag("--registry="), flag("--user=")) else {
        fail("give --registry and --user");
    };
    let Ok(password) = std::env::var("PASSWORD") else {
        fail("set PASSWORD");
    };
    let mut request = String::new();
    if std::io::stdin().read_to_string(&mut request).is_err() {
        fail("the request cannot be read");
    }
    // Without spaces: what is looked for has none.
    request.retain(|letter| !letter.is_whitespace());
    for part in [format!("\"apiVersion\":\"{VERSION}\""), "\"kind\":\"CredentialProviderRequest\"".to_owned()] {
        if !request.contains(&part) {
            fail("this is no request");
        }
    }
    let auth = if request.contains(&format!("\"image\":\"{registry}/")) {
        format!("{{\"{registry}\":{{\"username\":\"{user}\",\"password\":\"{password}\"}}}}")
    } else {
        "{}".to_owned()
    };
    println!(
        "{{\"apiVersion\":\"{VERSION}\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Image\",\"auth\":{auth}}}"
    );
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1);
}
