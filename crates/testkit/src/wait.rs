//! Waiting for a condition, with a deadline: what tests do instead of sleeping.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Asks again and again until the answer is Ok and gives back its value. An Err says why it is not so yet; the last one
/// stands in the error when the deadline passes. A single question may not take longer than the deadline either.
pub async fn wait_for<T, E: Display>(
    deadline: Duration,
    what: impl Into<String>,
    mut question: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    let mut pause = FIRST_PAUSE;
    let mut last = "no answer".to_owned();
    loop {
        match timeout_at(end, question()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(why)) => last = why.to_string(),
            Err(_) => {
                return Err(Error::Late {
                    what: what.into(),
                    after: deadline,
                    last,
                });
            }
        }
        if Instant::now() + pause >= end {
            return Err(Error::Late {
                what: what.into(),
                after: deadline,
                last,
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until the condition is true.
pub async fn wait_until(
    deadline: Duration,
    what: impl Into<String>,
    mut condition: impl AsyncFnMut() -> bool,
) -> Result<()> {
    wait_for(deadline, what, async || {
        if condition().await {
            Ok(())
        } else {
            Err("it is not so yet")
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_the_first_good_answer() {
        let mut count = 0;
        let value = wait_for(Duration::from_secs(5), "three questions", async || {
            count += 1;
            if count == 3 { Ok(count) } else { Err("too few") }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_it_waited_for_and_what_it_saw_last() {
        let error = wait_for(Duration::from_millis(30), "rain", async || {
            Err::<(), _>("the sun shines")
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "waited 30ms for rain: the sun shines");
    }

    #[tokio::test]
    async fn a_question_that_hangs_does_not_hang_the_test() {
        wait_until(Duration::from_millis(30), "an answer", async || {
            std::future::pending().await
        })
        .await
        .unwrap_err();
    }
}
