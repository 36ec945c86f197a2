//! What the node keeps of the cloud's objects: those that a watch or a read of the single object brought.

use std::collections::BTreeMap;

use serde_json::Value;

/// Objects by collection and name.
#[derive(Default)]
pub(super) struct Cache {
    collections: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Cache {
    pub(super) fn insert(&mut self, collection: &str, object: Value) {
        let name = name_of(&object);
        self.collections
            .entry(collection.to_owned())
            .or_default()
            .insert(name, object);
    }

    pub(super) fn remove(&mut self, collection: &str, object: &Value) {
        if let Some(objects) = self.collections.get_mut(collection) {
            objects.remove(&name_of(object));
        }
    }

    pub(super) fn get(&self, collection: &str, name: &str) -> Option<&Value> {
        self.collections.get(collection)?.get(name)
    }

    /// All objects, or the one of this name.
    pub(super) fn list(&self, collection: &str, name: Option<&str>) -> Vec<Value> {
        self.collections
            .get(collection)
            .into_iter()
            .flatten()
            .filter(|(known, _)| name.is_none_or(|name| name == known.as_str()))
            .map(|(_, object)| object.clone())
            .collect()
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Value {
        json!({ "metadata": { "name": name } })
    }

    #[test]
    fn what_came_is_found_and_what_went_is_not() {
        let mut cache = Cache::default();
        cache.insert("/apis/a", object("one"));
        cache.insert("/apis/a", object("two"));
        assert_eq!(cache.get("/apis/a", "one"), Some(&object("one")));
        assert_eq!(cache.get("/apis/b", "one"), None);
        assert_eq!(cache.list("/apis/a", None).len(), 2);
        assert_eq!(cache.list("/apis/a", Some("two")), [object("two")]);
        cache.remove("/apis/a", &object("one"));
        assert_eq!(cache.list("/apis/a", None), [object("two")]);
        assert!(cache.list("/apis/b", None).is_empty());
    }
}
