//! The jobs of a cluster, of all kinds, and how a person names one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::{Api, Client, ResourceExt};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};

use crate::failure::Failure;
use crate::job::JobView;

/// A job of any kind.
pub(crate) enum Job {
    Pull(Box<ImagePullJob>),
    List(Box<ImageListPullJob>),
    PrePull(Box<ImagePrePullJob>),
}

impl Job {
    pub(crate) fn view(&self) -> JobView {
        match self {
            Job::Pull(job) => JobView::from(&**job),
            Job::List(job) => JobView::from(&**job),
            Job::PrePull(job) => JobView::from(&**job),
        }
    }
}

/// All jobs of the namespace, or of all namespaces. ImagePrePullJobs have none. A kind that the cluster does not know has no
/// jobs, unless it knows none of them.
pub(crate) async fn list(client: &Client, everywhere: bool) -> Result<Vec<Job>, Failure> {
    let (pulls, lists): (Api<ImagePullJob>, Api<ImageListPullJob>) = if everywhere {
        (Api::all(client.clone()), Api::all(client.clone()))
    } else {
        (
            Api::default_namespaced(client.clone()),
            Api::default_namespaced(client.clone()),
        )
    };
    let pre_pulls: Api<ImagePrePullJob> = Api::all(client.clone());
    let all = ListParams::default();
    let (pulls, lists, pre_pulls) = futures::join!(pulls.list(&all), lists.list(&all), pre_pulls.list(&all));
    let mut unknown = None;
    let mut known = 0;
    let jobs = take(pulls, &mut known, &mut unknown)?
        .into_iter()
        .map(|job| Job::Pull(Box::new(job)));
    let lists = take(lists, &mut known, &mut unknown)?;
    let pre_pulls = take(pre_pulls, &mut known, &mut unknown)?;
    let jobs = jobs
        .chain(lists.into_iter().map(|job| Job::List(Box::new(job))))
        .chain(pre_pulls.into_iter().map(|job| Job::PrePull(Box::new(job))))
        .collect();
    match unknown {
        Some(failure) if known == 0 => Err(failure),
        _ => Ok(jobs),
    }
}

fn take<K: Clone>(
    answer: kube::Result<ObjectList<K>>,
    known: &mut usize,
    unknown: &mut Option<Failure>,
) -> Result<Vec<K>, Failure> {
    match answer {
        Ok(list) => {
            *known += 1;
            Ok(list.items)
        }
        Err(error) => {
            let failure = Failure::from_api("reading jobs", &error);
            if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                return Err(failure);
            }
            *unknown = Some(failure);
            Ok(Vec::new())
        }
    }
}

/// The one job of a name, which may have its kind in front.
pub(crate) fn find<'a>(jobs: &'a [Job], wanted: &str) -> Result<&'a Job, Failure> {
    let found: Vec<&Job> = jobs.iter().filter(|job| is_called(&job.view(), wanted)).collect();
    match found.as_slice() {
        [] => Err(Failure::wrong(format!(
            "there is no job {wanted}; larder status lists the ones there are"
        ))),
        [job] => Ok(job),
        several => {
            let titles: Vec<String> = several.iter().map(|job| job.view().full_title()).collect();
            Err(Failure::wrong(format!(
                "{wanted} is the name of several jobs: {}; say which, or give --namespace",
                titles.join(", ")
            )))
        }
    }
}

/// The jobs that a list job made, one for each image.
pub(crate) fn children<'a>(jobs: &'a [Job], list: &ImageListPullJob) -> Vec<&'a ImagePullJob> {
    let uid = list.uid().unwrap_or_default();
    let is_ours = |owner: &OwnerReference| owner.uid == uid;
    let children = jobs.iter().filter_map(|job| match job {
        Job::Pull(job) => Some(&**job),
        Job::List(_) | Job::PrePull(_) => None,
    });
    let mut children: Vec<&ImagePullJob> = children
        .filter(|job| job.owner_references().iter().any(is_ours))
        .collect();
    // Their names are drawn; people know the images.
    children.sort_by(|one, other| one.spec.image.cmp(&other.spec.image));
    children
}

/// `web`, or `imagepulljob/web`.
fn is_called(view: &JobView, wanted: &str) -> bool {
    view.name == wanted || view.title() == wanted.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_api::{ImageListPullJobSpec, ImagePullJobSpec};

    fn jobs() -> Vec<Job> {
        let in_namespace = |namespace: &str| {
            let mut job = ImagePullJob::new("api", ImagePullJobSpec::default());
            job.metadata.namespace = Some(namespace.into());
            Job::Pull(Box::new(job))
        };
        vec![
            Job::Pull(Box::new(ImagePullJob::new("web", ImagePullJobSpec::default()))),
            Job::List(Box::new(ImageListPullJob::new("web", ImageListPullJobSpec::default()))),
            in_namespace("a"),
            in_namespace("b"),
        ]
    }

    #[test]
    fn a_kind_tells_jobs_of_one_name_apart() {
        let jobs = jobs();
        assert_eq!(
            find(&jobs, "ImageListPullJob/web").unwrap().view().kind,
            "ImageListPullJob"
        );
    }

    #[test]
    fn a_name_that_says_too_little_or_nothing_is_refused() {
        let jobs = jobs();
        let says = |wanted: &str| {
            find(&jobs, wanted)
                .map(Job::view)
                .unwrap_err()
                .parts()
                .1
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            says("web"),
            "web is the name of several jobs: imagepulljob/web, imagelistpulljob/web; say which, or give --namespace"
        );
        assert_eq!(
            says("api"),
            "api is the name of several jobs: imagepulljob/api in a, imagepulljob/api in b; say which, or give --namespace"
        );
        assert_eq!(
            says("gone"),
            "there is no job gone; larder status lists the ones there are"
        );
    }
}
