//! Which order an agent looks at.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Names one state of one NodeImage's spec. Kept in the agent's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderId {
    /// Uid of the NodeImage.
    pub uid: String,
    /// Its generation, which the API server raises with every change of the spec.
    pub generation: i64,
}

/// How an order that was just seen stands to the one that is being obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The same order.
    Same,
    /// A later state of the same object: obey it.
    Newer,
    /// An earlier state: a late event, or a restored etcd. Obey it only if a fresh read returns it too.
    Older,
    /// The NodeImage was deleted and made again: obey it.
    AnotherObject,
}

impl OrderId {
    /// The order that an object carries. None if the API server has not been there yet.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: metadata.uid.clone()?,
            generation: metadata.generation?,
        })
    }

    /// How `seen` stands to `self`.
    pub fn standing_of(&self, seen: &OrderId) -> Standing {
        if self.uid != seen.uid {
            return Standing::AnotherObject;
        }
        match seen.generation.cmp(&self.generation) {
            std::cmp::Ordering::Equal => Standing::Same,
            std::cmp::Ordering::Greater => Standing::Newer,
            std::cmp::Ordering::Less => Standing::Older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn order(uid: &str, generation: i64) -> OrderId {
        OrderId {
            uid: uid.into(),
            generation,
        }
    }

    #[rstest]
    #[case::nothing_changed(order("a", 4), Standing::Same)]
    #[case::edited(order("a", 5), Standing::Newer)]
    #[case::late_event(order("a", 3), Standing::Older)]
    #[case::made_again_and_starts_over(order("b", 1), Standing::AnotherObject)]
    #[case::made_again_and_further_on(order("b", 9), Standing::AnotherObject)]
    fn standing(#[case] seen: OrderId, #[case] want: Standing) {
        assert_eq!(order("a", 4).standing_of(&seen), want);
    }

    #[test]
    fn an_object_without_uid_is_no_order() {
        let metadata = ObjectMeta {
            generation: Some(1),
            ..ObjectMeta::default()
        };
        assert_eq!(OrderId::of(&metadata), None);
    }
}
