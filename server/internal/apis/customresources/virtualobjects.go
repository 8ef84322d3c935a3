package customresources

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file converts the objects of a provider to the form for consumers.

func (s *virtualStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	r, there, consumer, err := s.locate(ctx)
	if err != nil {
		return err
	}
	if err := r.reader.Get(there, s.key(r, key), opts, out); err != nil {
		return err
	}
	if u, ok := out.(*unstructured.Unstructured); ok && u.GetName() != "" {
		show(u, consumer)
	}
	return nil
}

func (s *virtualStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	r, there, consumer, err := s.locate(ctx)
	if err != nil {
		return err
	}
	if err := r.reader.GetList(there, s.key(r, key), opts, list); err != nil {
		return err
	}
	if l, ok := list.(*unstructured.UnstructuredList); ok {
		for i := range l.Items {
			show(&l.Items[i], consumer)
		}
	}
	return nil
}

// show sets the cluster of an object. It does not modify data that the object shares with others.
func show(u *unstructured.Unstructured, cluster logicalcluster.Name) {
	annotations := maps.Clone(u.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = string(cluster)
	u.Object = maps.Clone(u.Object)
	metadata, _ := u.Object["metadata"].(map[string]any)
	u.Object["metadata"] = maps.Clone(metadata)
	u.SetAnnotations(annotations)
}

// Watch watches the objects until their source changes.
func (s *virtualStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	for {
		r, there, consumer, err := s.locate(ctx)
		if err != nil {
			return nil, err
		}
		there, end := s.handler.watches.Begin(there, s.targets(r)...)
		if there, err = s.endWithSlice(there, r); err != nil {
			end()
			return nil, err
		}
		again, _, _, err := s.locate(ctx)
		if err == nil && again.opened == r.opened && again.Slice == r.Slice && again.Resource == r.Resource {
			source, err := r.reader.Watch(there, s.key(r, key), opts)
			if err != nil {
				end()
				return nil, err
			}
			w := &shownWatch{source: source, consumer: consumer, results: make(chan watch.Event)}
			w.ctx, w.stop = context.WithCancel(there)
			context.AfterFunc(w.ctx, end)
			go w.deliver()
			return w, nil
		}
		end() // it changed in the meantime
		if err != nil {
			return nil, err
		}
	}
}

// targets are the objects whose changes end a watch: those that determine the provider, and the definition of the
// provider.
func (s *virtualStorage) targets(r *reading) []watched {
	if r.elsewhere != nil {
		return []watched{watchedPart(cachedresources.ExportPart(s.definition.shownBy.Cluster, s.definition.shownBy.Name))}
	}
	targets := []watched{{logicalcluster.Cluster{Name: r.cluster}, s.definition.Key()}}
	for _, p := range r.Parts() {
		targets = append(targets, watchedPart(p))
	}
	return targets
}

// shownWatch delivers the events of a provider's objects to a consumer.
type shownWatch struct {
	source   watch.Interface
	consumer logicalcluster.Name
	results  chan watch.Event
	ctx      context.Context
	stop     context.CancelFunc
}

func (w *shownWatch) deliver() {
	defer close(w.results)
	defer w.stop()
	defer w.source.Stop()
	for {
		select {
		case event, ok := <-w.source.ResultChan():
			if !ok {
				return
			}
			select {
			case w.results <- w.shown(event):
			case <-w.ctx.Done():
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *shownWatch) shown(event watch.Event) watch.Event {
	if event.Type == watch.Error || event.Type == watch.Bookmark {
		return event
	}
	if shared, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = shared.GetObject()
	}
	if u, ok := event.Object.(*unstructured.Unstructured); ok {
		show(u, w.consumer)
	}
	return event
}

// ResultChan implements watch.Interface.
func (w *shownWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *shownWatch) Stop() { w.stop() }

func (s *virtualStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return readOnly(s.resource, "create")
}

func (s *virtualStorage) Delete(context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object,
	storage.DeleteOptions) error {
	return readOnly(s.resource, "delete")
}

func (s *virtualStorage) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc,
	runtime.Object) error {
	return readOnly(s.resource, "update")
}

// originCodec decodes the stored objects of a provider for consumers: in the published version, and without metadata of the
// provider's workspace.
type originCodec struct {
	runtime.Codec
	current *atomic.Pointer[reading]
}

// Decode implements runtime.Decoder.
func (c *originCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	u, ok := obj.(*unstructured.Unstructured)
	r := c.current.Load()
	if err != nil || !ok || r == nil {
		return obj, kind, err
	}
	withoutOrigin(u)
	if u.GroupVersionKind().GroupVersion() == r.version {
		return u, kind, nil
	}
	converted, err := r.convert.ConvertToVersion(u, r.version)
	if err != nil {
		return nil, kind, err
	}
	u.Object = converted.(*unstructured.Unstructured).Object
	shown := u.GroupVersionKind()
	return u, &shown, nil
}

// ofOrigin reports whether a label or annotation concerns the workspace of the provider.
func ofOrigin(key string, _ string) bool {
	return key == corev1alpha1.PathAnnotation || key == "kcp.io/shard" ||
		strings.HasPrefix(key, "cache.kcp.io/original-") || strings.HasPrefix(key, apisv1alpha2.ClaimedLabelPrefix)
}

func withoutOrigin(u *unstructured.Unstructured) {
	if l := u.GetLabels(); l != nil {
		maps.DeleteFunc(l, ofOrigin)
		u.SetLabels(l)
	}
	if a := u.GetAnnotations(); a != nil {
		maps.DeleteFunc(a, ofOrigin)
		u.SetAnnotations(a)
	}
}
