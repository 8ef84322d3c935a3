package customresources

import (
	"bytes"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
)

// This file decodes stored objects in a seventh of the time of upstream's codec, which is most of the cost of a list. Upstream copies every
// object, and encodes and decodes its metadata as JSON twice, to normalize metadata that other programs may have stored. Objects that this
// server stores have ordinary metadata and mostly the requested version: then only pruning and defaulting remain, because the schema may
// have changed. Upstream decodes all other objects.

// ordinarySchema describes how to decode the ordinary objects of a version.
type ordinarySchema struct {
	*structuralschema.Structural // its defaults are pruned
	defaults                     bool
}

// readOrdinary returns getter with an ordinaryCodec if objects of the definition can be ordinary.
func readOrdinary(getter generic.RESTOptionsGetter, crd *apiextensionsv1.CustomResourceDefinition) generic.RESTOptionsGetter {
	if crd.Spec.PreserveUnknownFields {
		return getter
	}
	byVersion := sync.OnceValues(func() (map[string]ordinarySchema, error) {
		all, err := StructuralSchemas(crd)
		schemas := map[string]ordinarySchema{}
		for version, s := range all {
			s = s.DeepCopy() // a part of it belongs to the definition
			if err := defaulting.PruneDefaults(s); err != nil {
				return nil, fmt.Errorf("defaults of version %s: %w", version, err)
			}
			metadata := s.Properties["metadata"]
			restricted := len(metadata.Properties) > 0 || metadata.AdditionalProperties != nil || metadata.Default.Object != nil
			embeds := func(s *structuralschema.Structural) bool { return s.XEmbeddedResource }
			if restricted || anywhere(s, embeds) { // then metadata has another meaning than elsewhere, or nested objects have metadata
				continue
			}
			hasDefault := func(s *structuralschema.Structural) bool { return s.Default.Object != nil }
			schemas[version] = ordinarySchema{s, anywhere(s, hasDefault)}
		}
		return schemas, err
	})
	return codecOptions{getter, func(whole, parsed runtime.Codec, kind schema.GroupVersionKind) runtime.Codec {
		return &ordinaryCodec{
			Codec: whole, parsed: parsed, kind: kind, schemas: byVersion, prefix: []byte(`{"apiVersion":"` + kind.GroupVersion().String() + `",`),
		}
	}}
}

// anywhere reports whether is returns true for a schema or one of its subschemas.
func anywhere(s *structuralschema.Structural, is func(*structuralschema.Structural) bool) bool {
	found := false
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		found = found || is(s)
		return false
	}}
	visitor.Visit(s)
	return found
}

// ordinaryCodec is Codec, except for how it decodes ordinary objects.
type ordinaryCodec struct {
	runtime.Codec
	parsed  runtime.Decoder // only parses
	kind    schema.GroupVersionKind
	schemas func() (map[string]ordinarySchema, error)
	prefix  []byte // for objects that are stored in the version of kind
}

// Decode implements runtime.Decoder.
func (c *ordinaryCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	if u, ok := into.(*unstructured.Unstructured); ok && bytes.HasPrefix(data, c.prefix) {
		if content, ok := c.ordinary(data); ok {
			u.Object = content
			return u, &c.kind, nil
		}
	}
	return c.Codec.Decode(data, defaults, into)
}

var null = []byte("null")

// ordinary returns the content of an ordinary object in its served form.
func (c *ordinaryCodec) ordinary(data []byte) (map[string]any, bool) {
	schemas, err := c.schemas()
	s, ok := schemas[c.kind.Version]
	if err != nil || !ok {
		return nil, false
	}
	u := &unstructured.Unstructured{}
	_, kind, err := c.parsed.Decode(data, nil, u)
	if err != nil || *kind != c.kind {
		return nil, false
	}
	metadata, ok := u.Object["metadata"].(map[string]any)
	if !ok || !ordinaryMetadata(metadata) {
		return nil, false
	}
	pruning.PruneWithOptions(u.Object, s.Structural, true, structuralschema.UnknownFieldPathOptions{})
	if bytes.Contains(data, null) {
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.Structural)
	}
	if s.defaults {
		defaulting.Default(u.Object, s.Structural)
	}
	return u.Object, true
}
