//! An error with its causes, on one line, for logs and health endpoints.

use std::error::Error;

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

/// What the API server says, without the dump of its whole answer that the client library adds.
fn message(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.message.clone(),
        _ => error.to_string(),
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
    fn every_cause_stands_there_once() {
        let io = || std::io::Error::other("the lights are off");
        let wanted = "cannot read the menu: the lights are off";
        assert_eq!(chain(&Failure::Menu(io())), wanted);
        assert_eq!(chain(&Failure::Repeating(io())), wanted);
    }
}
