//! What each ServiceAccount may do, as the API server itself tells it, is what `docs/rights.md` says, and nothing more.
//!
//! The API server is asked twice. Its list of an account's rules names every verb and resource, and the objects that a
//! rule is narrowed to. Then each verb on each resource that it serves is asked for one by one, with no object named and
//! in a namespace that is none of ours, in case a right comes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use larder_testkit::{ControlPlane, Kubectl, Options, Scratch, kubectl};

use crate::chart::{NAMESPACE, template};

const ELSEWHERE: &str = "kube-system";
const VERBS: [&str; 12] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "use",
];

/// One verb on one resource, everywhere or in our namespace, on all objects or those of these names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    account: String,
    scope: String,
    group: String,
    resource: String,
    names: String,
    verb: String,
}

#[tokio::test]
async fn every_service_account_may_do_what_the_documentation_says_and_no_more() {
    let plane = installed().await;
    let documented = documented();
    let accounts: BTreeSet<&str> = documented.iter().map(|right| right.account.as_str()).collect();
    assert_eq!(
        accounts.into_iter().collect::<Vec<_>>(),
        [
            "larder-agent",
            "larder-controller",
            "larder-installer",
            "larder-uninstaller"
        ]
    );
    let mut granted = BTreeSet::new();
    let everybodys = rules(&plane, "default", ELSEWHERE).await;
    for account in [
        "larder-agent",
        "larder-controller",
        "larder-installer",
        "larder-uninstaller",
    ] {
        let everywhere = rules(&plane, account, ELSEWHERE).await;
        let here = rules(&plane, account, NAMESPACE).await;
        let only_here = here.difference(&everywhere).cloned();
        granted.extend(
            everywhere
                .difference(&everybodys)
                .map(|rule| right(account, "cluster", rule)),
        );
        granted.extend(only_here.map(|rule| right(account, NAMESPACE, &rule)));
    }
    let undocumented: Vec<_> = granted.difference(&documented).collect();
    let missing: Vec<_> = documented.difference(&granted).collect();
    assert!(
        undocumented.is_empty() && missing.is_empty(),
        "docs/rights.md must be changed.\nnot in it: {undocumented:#?}\nonly in it: {missing:#?}"
    );
}

#[tokio::test]
async fn no_right_comes_from_elsewhere() {
    let plane = installed().await;
    let client = plane.client().unwrap();
    let resources = resources(&client).await;
    assert!(resources.len() > 100, "{}", resources.len());
    let documented = documented();
    for account in [
        "larder-agent",
        "larder-controller",
        "larder-installer",
        "larder-uninstaller",
    ] {
        let wanted: BTreeSet<(String, String, String)> = documented
            .iter()
            .filter(|right| right.account == account && right.scope == "cluster" && right.names.is_empty())
            .map(|right| (right.group.clone(), right.resource.clone(), right.verb.clone()))
            .collect();
        let nobody = allowed(&client, "default", &resources).await;
        let found = allowed(&client, account, &resources).await;
        let found: BTreeSet<_> = found.difference(&nobody).cloned().collect();
        assert_eq!(found, wanted, "{account}");
    }
}

/// A control plane on which the rendered chart, hooks included, was applied.
async fn installed() -> ControlPlane {
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let scratch = Scratch::create("rights").unwrap();
    let file = scratch.path().join("rendered.yaml");
    let arguments = ["--kube-version=1.36.0", "--set=installation.createNamespace=true"];
    let rendered = template(&arguments.map(str::to_owned)).await.unwrap();
    std::fs::write(&file, rendered).unwrap();
    // Twice: objects stand in the order of their files, and the namespace is not the first.
    for last in [false, true] {
        let arguments = ["apply".as_ref(), "-f".as_ref(), file.as_os_str()];
        let output = kubectl(Kubectl::Current, plane.kubeconfig(), arguments).await.unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!last || output.status.success(), "{complaint}");
    }
    let account = ["create", "serviceaccount", "default", "-n", NAMESPACE];
    let output = kubectl(Kubectl::Current, plane.kubeconfig(), account).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    plane
}

/// A rule of one verb and one resource: verb, group, resource, names.
type Rule = [String; 4];

/// What the API server says an account may do in a namespace, the cluster's resources included.
async fn rules(plane: &ControlPlane, account: &str, namespace: &str) -> BTreeSet<Rule> {
    let access = plane.access();
    let token = access.service_account_token(NAMESPACE, account, None).await.unwrap();
    let reviews = Api::<SelfSubjectRulesReview>::all(access.client_with_token(&token).unwrap());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let status = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap()
        .status
        .unwrap();
    status.resource_rules.iter().flat_map(single).collect()
}

fn single(rule: &ResourceRule) -> Vec<Rule> {
    let mut names = rule.resource_names.clone().unwrap_or_default();
    names.sort();
    let mut found = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                found.push([verb.clone(), group.clone(), resource.clone(), names.join(", ")]);
            }
        }
    }
    found
}

fn right(account: &str, scope: &str, [verb, group, resource, names]: &Rule) -> Right {
    Right {
        account: account.to_owned(),
        scope: scope.to_owned(),
        group: group.clone(),
        resource: resource.clone(),
        names: names.clone(),
        verb: verb.clone(),
    }
}

/// The tables in the documentation. A heading of the second level names the account.
fn documented() -> BTreeSet<Right> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rights.md");
    let text = std::fs::read_to_string(file).unwrap();
    let mut rights = BTreeSet::new();
    let mut account = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.trim().clone_into(&mut account);
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [scope, group, resource, names, verbs, _why] = cells.as_slice() else {
            continue;
        };
        if ["where", "---"].contains(scope) {
            continue;
        }
        let mut names: Vec<&str> = names.split(", ").collect();
        names.sort_unstable();
        for verb in verbs.split(", ") {
            rights.insert(Right {
                account: account.clone(),
                scope: (*scope).to_owned(),
                group: group.replace("core", ""),
                resource: (*resource).to_owned(),
                names: names.join(", "),
                verb: verb.to_owned(),
            });
        }
    }
    rights
}

/// Every resource and subresource that the API server serves, with its group, and the finalizers of each, which are only a
/// name for a right.
async fn resources(client: &Client) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for version in client.list_core_api_versions().await.unwrap().versions {
        let list = client.list_core_api_resources(&version).await.unwrap();
        found.extend(
            list.resources
                .into_iter()
                .map(|resource| (String::new(), resource.name)),
        );
    }
    for group in client.list_api_groups().await.unwrap().groups {
        for version in &group.versions {
            let list = client.list_api_group_resources(&version.group_version).await.unwrap();
            found.extend(
                list.resources
                    .into_iter()
                    .map(|resource| (group.name.clone(), resource.name)),
            );
        }
    }
    let whole = found.iter().filter(|(_, resource)| !resource.contains('/'));
    let finalizers: Vec<_> = whole
        .map(|(group, resource)| (group.clone(), format!("{resource}/finalizers")))
        .collect();
    found.extend(finalizers);
    found
}

/// Which verbs on which resources an account may use where nothing is its own.
async fn allowed(
    client: &Client,
    account: &str,
    resources: &BTreeSet<(String, String)>,
) -> BTreeSet<(String, String, String)> {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    let questions = resources
        .iter()
        .flat_map(|(group, resource)| VERBS.map(|verb| (group, resource, verb)));
    let answers: BTreeMap<(String, String, String), bool> = stream::iter(questions)
        .map(|(group, resource, verb)| {
            let review = question(account, group, resource, verb);
            let reviews = reviews.clone();
            async move {
                let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
                let key = (group.clone(), resource.clone(), verb.to_owned());
                (key, answer.status.unwrap().allowed)
            }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    answers
        .into_iter()
        .filter(|(_, allowed)| *allowed)
        .map(|(key, _)| key)
        .collect()
}

fn question(account: &str, group: &str, resource: &str, verb: &str) -> SubjectAccessReview {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{NAMESPACE}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{NAMESPACE}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(ELSEWHERE.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
