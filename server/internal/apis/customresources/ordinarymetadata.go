package customresources

import (
	"time"
)

// is reports whether a value has the form in which metadata is encoded.
type is func(value any) bool

// The forms are those of a metav1.ObjectMeta that is encoded and decoded: no unknown field, no field of another type, and no
// empty field that would be omitted.
var (
	objectMeta = fields(map[string]is{
		"name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text, "resourceVersion": text,
		"generation": positive, "creationTimestamp": timestamp, "deletionTimestamp": timestamp, "deletionGracePeriodSeconds": number,
		"labels": texts, "annotations": texts, "finalizers": items(anyText), "ownerReferences": items(ownerReference),
		"managedFields": items(managedFields),
	})
	ownerReference = fields(map[string]is{
		"apiVersion": anyText, "kind": anyText, "name": anyText, "uid": anyText, "controller": boolean, "blockOwnerDeletion": boolean,
	}, "apiVersion", "kind", "name", "uid")
	managedFields = fields(map[string]is{
		"manager": text, "operation": text, "apiVersion": text, "time": timestamp, "fieldsType": text, "fieldsV1": object, "subresource": text,
	})
)

// ordinaryMetadata reports whether metadata has the form that upstream would write. A generation is required, because
// upstream adds a missing one.
func ordinaryMetadata(metadata map[string]any) bool {
	_, counted := metadata["generation"]
	return counted && objectMeta(metadata)
}

func fields(known map[string]is, required ...string) is {
	return func(value any) bool {
		fields, ok := value.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range fields {
			if is, ok := known[name]; !ok || !is(value) {
				return false
			}
		}
		for _, name := range required {
			if _, ok := fields[name]; !ok {
				return false
			}
		}
		return true
	}
}

func items(each is) is {
	return func(value any) bool {
		items, ok := value.([]any)
		for _, item := range items {
			ok = ok && each(item)
		}
		return ok && len(items) > 0
	}
}

func anyText(value any) bool {
	_, ok := value.(string)
	return ok
}

func text(value any) bool { return anyText(value) && value != "" }

func texts(value any) bool {
	texts, ok := value.(map[string]any)
	for _, text := range texts {
		ok = ok && anyText(text)
	}
	return ok && len(texts) > 0
}

func object(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

func boolean(value any) bool {
	_, ok := value.(bool)
	return ok
}

func number(value any) bool {
	_, ok := value.(int64)
	return ok
}

func positive(value any) bool {
	n, ok := value.(int64)
	return ok && n > 0
}

// timestamp is a time of whole seconds in UTC.
func timestamp(value any) bool {
	text, ok := value.(string)
	if !ok {
		return false
	}
	t, err := time.Parse(time.RFC3339, text)
	return err == nil && !t.IsZero() && t.UTC().Format(time.RFC3339) == text
}
