//! An error with its causes, on one line, for logs and health endpoints.

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;

/// The messages from the outermost to the innermost cause. A message that the one before it already ends with is left
/// out: some libraries print their cause and hand it out as well.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = message(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let because = message(cause);
        if !text.contains(&because) {
            text.push_str(": ");
            text.push_str(&because);
        }
        next = cause.source();
    }
    text
}

/// What an error says of itself. The client library prints causes inside of messages, and whole answers beside their text.
fn message(error: &(dyn Error + 'static)) -> String {
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return status.message.clone();
    }
    if let Some(status) = error.downcast_ref::<Box<Status>>() {
        return status.message.clone();
    }
    match error.downcast_ref() {
        Some(watcher::Error::InitialListFailed(_)) => "cannot list".to_owned(),
        Some(watcher::Error::WatchStartFailed(_)) => "cannot begin to watch".to_owned(),
        Some(watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_)) => "the watch broke off".to_owned(),
        Some(watcher::Error::NoResourceVersion) | None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("cannot read the menu")]
        Menu(#[source] std::io::Error),
        #[error("cannot read the menu: {0}")]
        Repeating(#[source] std::io::Error),
    }

    #[test]
    fn an_answer_of_the_api_server_is_its_text_alone() {
        let status = Status::failure("nodes is forbidden", "Forbidden").with_code(403);
        let error = watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status.clone())));
        assert_eq!(chain(&error), "cannot begin to watch: nodes is forbidden");
        let error = watcher::Error::WatchError(Box::new(status));
        assert_eq!(chain(&error), "the watch broke off: nodes is forbidden");
    }

    #[test]
    fn every_cause_stands_there_once() {
        let io = || std::io::Error::other("the lights are off");
        let wanted = "cannot read the menu: the lights are off";
        assert_eq!(chain(&Failure::Menu(io())), wanted);
        assert_eq!(chain(&Failure::Repeating(io())), wanted);
    }
}
