package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file prevents an unreadable stored value from hiding others. A read that finds such a value is repeated in a context in which
// guard returns a stand-in: an empty object of the type with the name in the key. Reads across all clusters, and those of the server
// itself, omit stand-ins. Lists of one cluster include them, so that clients can delete them.

// UnreadableAnnotation is on the stand-in for an unreadable object in a list of one cluster.
const UnreadableAnnotation = "kcp.io/unreadable"

// unreadable is the error of decoding a stored value. It is an APIStatus, because upstream's watches pass on only the status of
// an error.
type unreadable struct{ cause error }

func (u *unreadable) Unwrap() error { return u.cause }
func (u *unreadable) Error() string {
	return fmt.Sprintf("the stored object is unreadable: %v: delete it, or ask an administrator to restore it", u.cause)
}

// Status implements apierrors.APIStatus.
func (u *unreadable) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError, Message: u.Error(),
	}
}

// IsUnreadable reports whether err means that a stored object cannot be decoded.
func IsUnreadable(err error) bool {
	var u *unreadable
	return errors.As(err, &u)
}

// readCodec is the codec of stored values without the conversions that handlers of definitions add, which fail for other
// reasons.
type readCodec struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (c readCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		err = hasMetadata(obj)
	}
	if err != nil {
		return obj, kind, &unreadable{err}
	}
	return obj, kind, nil
}

// hasMetadata returns an error if a custom resource has no name. Objects with Go types always have metadata.
func hasMetadata(obj runtime.Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	m, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return errors.New("metadata is not an object")
	}
	if name, ok := m["name"].(string); !ok || name == "" {
		return errors.New("metadata.name is not set")
	}
	return nil
}

// location is the location of an object in its key.
type location struct {
	cluster         logicalcluster.Name
	namespace, name string
}

// keyOf returns the key of a value. The key of upstream's storage is already a string.
func keyOf(of value.Context) string {
	if v := reflect.ValueOf(of); v.Kind() == reflect.String {
		return v.String()
	}
	return string(of.AuthenticatedData())
}

// locate splits a key, which ends with [<cluster>/][<namespace>/]<name>.
func locate(key string, namespaced bool) location {
	var l location
	rest := key
	last := func() string {
		at := strings.LastIndexByte(rest, '/')
		part := rest[at+1:]
		rest = rest[:max(at, 0)]
		return part
	}
	l.name = last()
	if namespaced {
		l.namespace = last()
	}
	l.cluster = logicalcluster.Name(last())
	return l
}

// guard is the value.Transformer between a storage and all others.
type guard struct {
	value.Transformer
	backend    *Backend
	resource   schema.GroupResource
	codec      runtime.Codec // decodes what is stored
	newFunc    func() runtime.Object
	namespaced bool
	// above is the part of keys before an identity, if objects of different definitions are read, some of which may have
	// namespaces.
	above string
	// below is the part of keys before a cluster, if the key of an object decides whether it has a namespace.
	below string
	kind  schema.GroupVersionKind // for stand-ins that newFunc creates without a kind
	// custom are the resources that may have a Go type in the server.
	custom bool
}

// locate returns the location of the object of a key.
func (g *guard) locate(key string) location {
	namespaced := g.namespaced
	if at := strings.LastIndex(key, g.above); g.above != "" && at >= 0 {
		namespaced = strings.Count(key[at+len(g.above):], "/") == 3 // <identity>/<cluster>/<namespace>/<name>
	}
	if at := strings.LastIndex(key, g.below); g.below != "" && at >= 0 {
		namespaced = strings.Count(key[at+len(g.below):], "/") == 2 // <cluster>/<namespace>/<name>
	}
	return locate(key, namespaced)
}

// TransformFromStorage implements value.Transformer.
func (g *guard) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	stored := data
	decoded(ctx, stored)
	data, stale, err := g.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if damaged := (*unreadable)(nil); err != nil && !errors.As(err, &damaged) {
		return data, stale, err // an error of decryption: the encryption keys may be wrong, and all values intact
	}
	at := func() location { return g.locate(keyOf(dataCtx)) }
	mark, tolerant := ctx.Value(standInKey{}).(string)
	r, repairs := ctx.Value(repairKey{}).(*repair)
	if repairs {
		r.needed = err != nil || g.typed() != nil && g.typed().storable(data) != nil
	}
	if !tolerant {
		if err == nil && comparesKeys(ctx) {
			if at := at(); !at.isIn(data) {
				err = g.check(at, data)
			}
		}
		return data, stale, err
	}
	place := at()
	if err == nil {
		err = g.check(place, data)
	}
	if err == nil {
		return data, stale, nil
	}
	u := Unreadable{Cluster: place.cluster, Resource: g.resource, Namespace: place.namespace, Name: place.name, Err: err}
	defer g.backend.reports.report(u, stored)
	if less := withoutConditions(data); !g.kind.Empty() && less != nil && g.check(place, less) == nil {
		return less, true, nil
	}
	data, err = g.standIn(place, mark)
	return data, true, err
}

type asListedKey struct{}

// asListed returns a context in which a read of one object compares it with its key, as reads across all clusters do.
func asListed(ctx context.Context) context.Context {
	return context.WithValue(ctx, asListedKey{}, true)
}

// comparesKeys reports whether an object with the metadata of another key is unreadable.
func comparesKeys(ctx context.Context) bool {
	c, _ := logicalcluster.From(ctx)
	return c.Wildcard || ctx.Value(asListedKey{}) != nil
}

// TransformToStorage implements value.Transformer. It rejects values that the server's own reads could not decode.
func (g *guard) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	if c := g.typed(); c != nil {
		if err := c.storable(data); err != nil {
			if r, ok := ctx.Value(repairKey{}).(*repair); !ok || !r.needed {
				return nil, invalid(c, g.locate(keyOf(dataCtx)).name, data, err)
			}
		}
	}
	handOver(ctx, data)
	return g.Transformer.TransformToStorage(ctx, data, dataCtx)
}

// typed returns the codec of the Go type of a custom resource, or nil.
func (g *guard) typed() *typedCodec {
	if !g.custom {
		return nil
	}
	c, _ := g.backend.typed.Load(g.resource)
	codec, _ := c.(*typedCodec)
	return codec
}

// isIn reports whether data has the name and the cluster of its key. A false result can be wrong.
func (l location) isIn(data []byte) bool {
	var buffer [256]byte
	if len(data) > 0 && data[0] == '{' {
		cluster := append(append(append(buffer[:0], `"`+logicalcluster.AnnotationKey+`":"`...), l.cluster...), '"')
		if !bytes.Contains(data, cluster) {
			return false
		}
		return bytes.Contains(data, append(append(append(buffer[:0], `"name":"`...), l.name...), '"'))
	}
	cluster := append(append(buffer[:0], logicalcluster.AnnotationKey+"\x12"...), byte(len(l.cluster)))
	if len(l.cluster) > 127 || len(l.name) > 127 || !bytes.Contains(data, append(cluster, l.cluster...)) {
		return false
	}
	return bytes.Contains(data, append(append(buffer[:0], '\n', byte(len(l.name))), l.name...))
}

// check returns an error if a value is unreadable, or does not belong to its key.
func (g *guard) check(at location, data []byte) error {
	obj, _, err := g.codec.Decode(data, nil, nil)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return &unreadable{err}
	}
	if found := (location{logicalcluster.Of(m), m.GetNamespace(), m.GetName()}); found != at {
		return &unreadable{fmt.Errorf("its metadata belongs to %s/%s in logical cluster %q", found.namespace, found.name, found.cluster)}
	}
	return nil
}

// withoutConditions returns an object without the conditions of its status, or nil if it has none. The server can use an object
// without conditions, which controllers write again, so that a LogicalCluster stays in service.
func withoutConditions(data []byte) []byte {
	var object map[string]any
	if utiljson.Unmarshal(data, &object) != nil {
		return nil
	}
	status, _ := object["status"].(map[string]any)
	if _, ok := status["conditions"]; !ok {
		return nil
	}
	delete(status, "conditions")
	less, err := utiljson.Marshal(object)
	if err != nil {
		return nil
	}
	return less
}

// standIn returns an object without content in its stored form.
func (g *guard) standIn(at location, mark string) ([]byte, error) {
	obj := g.newFunc()
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	m.SetName(at.name)
	m.SetNamespace(at.namespace)
	m.SetUID(types.UID(uuid.NewSHA1(uuid.Nil, []byte(g.resource.String()+"|"+string(at.cluster)+"|"+at.namespace+"/"+at.name)).String()))
	if ns, ok := obj.(*core.Namespace); ok {
		ns.Spec.Finalizers = []core.FinalizerName{core.FinalizerKubernetes} // its content is deleted first
	}
	m.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: string(at.cluster), UnreadableAnnotation: mark})
	if !g.kind.Empty() {
		obj.GetObjectKind().SetGroupVersionKind(g.kind)
	}
	return runtime.Encode(g.codec, obj)
}

type standInKey struct{}

// leftOut marks stand-ins that are not delivered. It is unknown outside of this process.
var leftOut = rand.Text()

// shown is the value of the annotation of delivered stand-ins.
const shown = "the stored object is unreadable: delete it, or ask an administrator to restore it"

// withStandIns returns a context whose reads replace unreadable objects by stand-ins with a mark.
func withStandIns(ctx context.Context, mark string) context.Context {
	return context.WithValue(ctx, standInKey{}, mark)
}

func isLeftOut(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && m.GetAnnotations()[UnreadableAnnotation] == leftOut
}

type repairKey struct{}

// repair lets an update keep content that the Go type cannot decode if it is already stored: finalizers can be removed, and the
// object can be repaired in steps.
type repair struct{ needed bool }

func withRepair(ctx context.Context) context.Context {
	return context.WithValue(ctx, repairKey{}, &repair{})
}

// isDeletion reports whether the request of ctx deletes what it reads.
func isDeletion(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && (info.Verb == "delete" || info.Verb == "deletecollection")
}
