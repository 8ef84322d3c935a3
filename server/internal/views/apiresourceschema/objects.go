package apiresourceschema

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual/resources"
)

// objects are the schemas that a cluster binds. They appear and disappear with its APIBindings, and never change: clients see
// the copy that the server keeps for consumers. Therefore the resource versions are those of APIBindings.
type objects struct {
	resources.Objects // nil: writes are not supported
	Config
	cluster logicalcluster.Name
}

// uses are the UIDs of bound schemas, with their bindings.
type uses map[string]*apisv1alpha2.APIBinding

func usesOf(b *apisv1alpha2.APIBinding) uses {
	found := uses{}
	for _, r := range b.Status.BoundResources {
		found[r.Schema.UID] = b
	}
	return found
}

// read returns the bound schemas and their resource version, which is the requested one if the request requires an
// exact version.
func (o objects) read(ctx context.Context, options metav1.ListOptions) (byBinding map[string]uses, version string, err error) {
	list, err := o.Stored.ListIn(ctx, o.cluster,
		metav1.ListOptions{ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch})
	if err != nil {
		return nil, "", err
	}
	byBinding = map[string]uses{}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		b := obj.(*apisv1alpha2.APIBinding)
		byBinding[b.Name] = usesOf(b)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return byBinding, m.GetResourceVersion(), nil
}

// schema returns a schema in its served form; nil if the server no longer keeps it.
func (o objects) schema(ctx context.Context, uid, version string) (*unstructured.Unstructured, error) {
	kept, err := o.Schemas.Get(logicalcluster.SystemBoundCRDs, "", uid)
	if apierrors.IsNotFound(err) { // or it is not known yet
		kept = &apisv1alpha1.APIResourceSchema{}
		err = o.Kept.Get(logicalcluster.WithName(ctx, logicalcluster.SystemBoundCRDs), uid, kept)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	shown := &apisv1alpha1.APIResourceSchema{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIResourceSchema"},
		ObjectMeta: metav1.ObjectMeta{
			Name: kept.Annotations[apisv1alpha2.SchemaNameAnnotation], UID: types.UID(uid), ResourceVersion: version,
			CreationTimestamp: kept.CreationTimestamp, Generation: 1,
			Annotations: map[string]string{logicalcluster.AnnotationKey: kept.Annotations[apisv1alpha2.SchemaClusterAnnotation]},
		},
		Spec: *kept.Spec.DeepCopy(),
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
	return &unstructured.Unstructured{Object: content}, err
}

// selector selects the objects of a request.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func selectorOf(options metav1.ListOptions) (selector, error) {
	byLabel, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	return selector{byLabel, byField}, nil
}

func (s selector) matches(u *unstructured.Unstructured) bool {
	return s.labels.Matches(labels.Set(u.GetLabels())) && s.fields.Matches(fields.Set{"metadata.name": u.GetName()})
}

// List implements resources.Objects. A cluster binds few schemas, so they are one page.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	wanted, err := selectorOf(options)
	if err != nil {
		return nil, err
	}
	bound, version, err := o.read(ctx, options)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(version)
	for _, all := range bound {
		for uid, b := range all {
			u, err := o.schema(ctx, uid, b.ResourceVersion)
			if err != nil {
				return nil, err
			}
			if u != nil && wanted.matches(u) {
				list.Items = append(list.Items, *u)
			}
		}
	}
	return list, nil
}

// Get implements resources.Objects.
func (o objects) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	list, err := o.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: apisv1alpha1.SchemeGroupVersion.Group,
			Resource: "apiresourceschemas"}, name)
	}
	return &list.Items[0], nil
}

// Watch implements resources.Objects.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	wanted, err := selectorOf(options)
	if err != nil {
		return nil, err
	}
	fresh := options.ResourceVersion == "" || options.ResourceVersion == "0"
	at := metav1.ListOptions{}
	if !fresh {
		at = metav1.ListOptions{ResourceVersion: options.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	bound, version, err := o.read(ctx, at)
	if err != nil {
		return nil, err
	}
	changes, err := o.Stored.WatchIn(ctx, o.cluster,
		metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: options.AllowWatchBookmarks})
	if err != nil {
		return nil, err
	}
	f := &follower{
		objects: o, wanted: wanted, bound: bound, changes: changes, shown: map[string]*unstructured.Unstructured{},
		events: make(chan watch.Event), stop: make(chan struct{}),
	}
	initial := fresh || (options.SendInitialEvents != nil && *options.SendInitialEvents)
	marked := options.SendInitialEvents != nil && *options.SendInitialEvents && options.AllowWatchBookmarks
	go f.run(ctx, initial, marked, version)
	return f, nil
}
