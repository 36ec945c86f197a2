//! Who may do what, as the API server judges it: the controller's and the agents' accounts by the rules that they are
//! installed with, and the current user.

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use larder_access::{AGENT, CONTROLLER, Settings};
use larder_api::names::{KRUISE_GROUP, KUBEEDGE_GROUP};
use serde_json::Value;

use super::see;
use crate::commands::doctor::facts::{Accounts, Rights, Seen};

/// Questions at once.
const AT_ONCE: usize = 16;

/// What the commands need: verb, group, resource, command.
const OWN: [(&str, &str, &str, &str); 8] = [
    ("list", KRUISE_GROUP, "imagepulljobs", "larder status"),
    ("list", KRUISE_GROUP, "imagelistpulljobs", "larder status"),
    ("list", KUBEEDGE_GROUP, "imageprepulljobs", "larder status"),
    ("create", KRUISE_GROUP, "imagepulljobs", "larder run"),
    ("watch", KRUISE_GROUP, "imagepulljobs", "larder run"),
    ("list", KRUISE_GROUP, "nodeimages", "larder why"),
    ("list", "", "nodes", "larder why"),
    ("patch", KRUISE_GROUP, "nodeimages", "larder plan"),
];

/// One question to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    verb: String,
    group: String,
    resource: String,
    /// None: all objects.
    name: Option<String>,
    /// None: in the whole cluster.
    namespace: Option<String>,
}

pub(super) async fn rights(client: &Client, namespace: &str, accounts: &Accounts) -> Rights {
    let (controller, agent, own) = futures::join!(
        lacking(client, namespace, CONTROLLER, &accounts.controller, accounts),
        lacking(client, namespace, AGENT, &accounts.agent, accounts),
        own(client)
    );
    Rights { controller, agent, own }
}

/// What an account lacks of the rules of its role.
async fn lacking(
    client: &Client,
    namespace: &str,
    role: &str,
    account: &str,
    accounts: &Accounts,
) -> Seen<Vec<String>> {
    let settings = Settings {
        namespace: namespace.to_owned(),
        ..Settings::default()
    };
    let manifests = larder_access::manifests(&settings);
    let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
    let questions = objects.flat_map(|object| rules(object, role));
    let questions: Vec<Question> = questions.map(|question| question.about(accounts)).collect();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let ask = async |question: Question| {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.clone()),
                groups: Some(groups.to_vec()),
                resource_attributes: Some(question.attributes()),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = see(reviews.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok((!allowed).then(|| question.words()))
    };
    let answers: Vec<Seen<Option<String>>> = stream::iter(questions).map(ask).buffered(AT_ONCE).collect().await;
    let mut lacks: Vec<String> = answers.into_iter().filter_map(Result::transpose).collect::<Seen<_>>()?;
    lacks.dedup();
    Ok(lacks)
}

/// The rights that the current user lacks. Each command is named once.
async fn own(client: &Client) -> Seen<Vec<(String, &'static str)>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let namespace = client.default_namespace().to_owned();
    let ask = async |(verb, group, resource, command): (&str, &str, &str, &'static str)| {
        let namespaced = resource.ends_with("pulljobs") && group == KRUISE_GROUP;
        let question = Question {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: None,
            namespace: namespaced.then(|| namespace.clone()),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(question.attributes()),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = see(reviews.create(&PostParams::default(), &review)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok((!allowed).then(|| (question.words(), command)))
    };
    let answers: Vec<Seen<Option<(String, &'static str)>>> =
        stream::iter(OWN).map(ask).buffered(AT_ONCE).collect().await;
    answers.into_iter().filter_map(Result::transpose).collect()
}

/// The questions that the rules of a role of this name come to.
fn rules(role: &Value, account: &str) -> Vec<Question> {
    let kind = role["kind"].as_str().unwrap_or_default();
    if role["metadata"]["name"] != account || !["Role", "ClusterRole"].contains(&kind) {
        return Vec::new();
    }
    let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut questions = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = texts(&rule["resourceNames"]);
        let names: Vec<Option<String>> = if names.is_empty() {
            vec![None]
        } else {
            names.into_iter().map(Some).collect()
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    questions.extend(names.iter().map(|name| Question {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        namespace: namespace.clone(),
                    }));
                }
            }
        }
    }
    questions
}

impl Question {
    /// The same with the names that the accounts have in this cluster.
    fn about(mut self, accounts: &Accounts) -> Self {
        if self.resource == "serviceaccounts" && self.name.as_deref() == Some(AGENT) {
            self.name = Some(accounts.agent.clone());
        }
        self
    }

    fn attributes(&self) -> ResourceAttributes {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
            None => (self.resource.clone(), None),
        };
        ResourceAttributes {
            verb: Some(self.verb.clone()),
            group: Some(self.group.clone()),
            resource: Some(resource),
            subresource,
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..ResourceAttributes::default()
        }
    }

    /// `list imagepulljobs.apps.kruise.io`, as kubectl says it.
    fn words(&self) -> String {
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(".{}", self.group)
        };
        let resource = match self.resource.split_once('/') {
            Some((resource, subresource)) => format!("{resource}{group}/{subresource}"),
            None => format!("{}{group}", self.resource),
        };
        format!("{} {resource}", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(account: &str) -> Vec<Question> {
        let manifests = larder_access::manifests(&Settings::default());
        let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
        objects.flat_map(|object| rules(object, account)).collect()
    }

    #[test]
    fn every_rule_becomes_a_question() {
        let agent: Vec<String> = of(AGENT).iter().map(Question::words).collect();
        assert_eq!(
            agent,
            [
                "get nodeimages.apps.kruise.io",
                "list nodeimages.apps.kruise.io",
                "watch nodeimages.apps.kruise.io",
                "patch nodeimages.apps.kruise.io/status",
            ]
        );
        let controller = of(CONTROLLER);
        assert!(controller.iter().any(|question| question.words() == "get secrets"));
        let lease = controller
            .iter()
            .find(|question| question.resource == "leases" && question.verb == "get");
        let lease = lease.unwrap();
        assert_eq!(lease.name.as_deref(), Some(CONTROLLER));
        assert_eq!(lease.namespace.as_deref(), Some("larder-system"));
    }

    #[test]
    fn the_agents_account_is_asked_for_by_the_name_that_it_has() {
        let accounts = Accounts {
            controller: "keeper".to_owned(),
            agent: "hand".to_owned(),
        };
        let questions = of(CONTROLLER).into_iter().map(|question| question.about(&accounts));
        let impersonate: Vec<Option<String>> = questions
            .filter(|question| question.verb == "impersonate")
            .map(|question| question.name)
            .collect();
        assert_eq!(impersonate, [Some("hand".to_owned())]);
    }

    #[test]
    fn a_subresource_is_asked_for_by_itself() {
        let questions = of(AGENT);
        let attributes = questions.last().unwrap().attributes();
        assert_eq!(attributes.resource.as_deref(), Some("nodeimages"));
        assert_eq!(attributes.subresource.as_deref(), Some("status"));
    }
}
