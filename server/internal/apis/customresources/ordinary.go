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

// This file reads stored objects in a seventh of the time that upstream's codec takes, which is most of what a list costs. Upstream copies
// every object, and twice writes its metadata as JSON and reads them back, to bring whatever somebody may have stored into order. What this
// server stores has ordinary metadata and mostly the version that is asked for: then nothing is left but to prune it and to set
// defaults, because the schema may have changed. All other objects are left to upstream.

// ordinarySchema says how to read the ordinary objects of a version.
type ordinarySchema struct {
	*structuralschema.Structural // its defaults are pruned
	defaults                     bool
}

// readOrdinary returns getter with an ordinaryCodec, if the definition's objects can be ordinary.
func readOrdinary(getter generic.RESTOptionsGetter, crd *apiextensionsv1.CustomResourceDefinition) generic.RESTOptionsGetter {
	if crd.Spec.PreserveUnknownFields {
		return getter
	}
	byVersion := sync.OnceValues(func() (map[string]ordinarySchema, error) {
		all, err := StructuralSchemas(crd)
		schemas := map[string]ordinarySchema{}
		for version, s := range all {
			s = s.DeepCopy() // a part of it is the definition's
			if err := defaulting.PruneDefaults(s); err != nil {
				return nil, fmt.Errorf("defaults of version %s: %w", version, err)
			}
			metadata := s.Properties["metadata"]
			restricted := len(metadata.Properties) > 0 || metadata.AdditionalProperties != nil || metadata.Default.Object != nil
			embeds := func(s *structuralschema.Structural) bool { return s.XEmbeddedResource }
			if restricted || anywhere(s, embeds) { // then metadata are not what they are elsewhere, or objects within have some
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

// anywhere tells whether is is true for a schema or one within.
func anywhere(s *structuralschema.Structural, is func(*structuralschema.Structural) bool) bool {
	found := false
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		found = found || is(s)
		return false
	}}
	visitor.Visit(s)
	return found
}

// ordinaryCodec is Codec, but for how it reads ordinary objects.
type ordinaryCodec struct {
	runtime.Codec
	parsed  runtime.Decoder // does no more than parse
	kind    schema.GroupVersionKind
	schemas func() (map[string]ordinarySchema, error)
	prefix  []byte // of objects that are stored in the version of kind
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

// ordinary returns the content of an ordinary object as it is served.
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
