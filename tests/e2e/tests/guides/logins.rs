//! A private registry: the job waits for its Secrets, and no password is in plain sight.

use larder_e2e::SOON;
use larder_testkit::image::Recipe;
use larder_testkit::wait_for;

use crate::Guide;

pub(crate) async fn a_job_waits_for_its_secrets(guide: &Guide) {
    let Guide { cluster, private, .. } = guide;
    let image = private
        .push(&Recipe::random(41, 1, 100 * 1024).build(), "team/app", "v1")
        .await
        .unwrap();
    guide.apply("imagepulljob-private-registry.yaml").await;
    let waits = async || {
        let status = cluster.status("job-with-secrets").await;
        let message = status.message.clone().unwrap_or_default();
        if message.contains("default/secret-name") && status.progress.reasons.contains_key("SecretMissing") {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    };
    wait_for(SOON, "the job to name what it waits for", waits)
        .await
        .unwrap();
    for (name, server) in [
        ("secret-name1", "elsewhere.example"),
        ("secret-name2", "registry.example"),
    ] {
        cluster
            .kubectl(&[
                "create",
                "secret",
                "docker-registry",
                name,
                &format!("--docker-server={server}"),
                "--docker-username=cook",
                "--docker-password=salt",
            ])
            .await
            .unwrap();
    }
    let status = cluster.finished("job-with-secrets").await;
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (3, 3, 0),
        "{status:?}\n{}",
        cluster.logs()
    );
    for node in &cluster.nodes {
        assert!(node.has_image("registry.example/team/app:v1", &image.digest).await);
    }
    let anonymous = private.served();
    let opened = anonymous.iter().filter(|served| served.status == 200);
    assert!(0 < opened.count());
    let orders = cluster.kubectl(&["get", "nodeimages", "-o", "yaml"]).await.unwrap();
    // base64 of cook:salt
    for plain in ["salt", "Y29vazpzYWx0"] {
        assert!(!orders.contains(plain), "a password in plain text");
    }
}
