package customresources

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
	"github.com/kcplane/kcp/server/internal/informers"
)

// Definition is a distinct API: the common part of all CustomResourceDefinitions that behave in the same way. It is
// immutable and shared by clusters.
type Definition struct {
	// Hash identifies the definition by its content.
	Hash string
	// CRD has the spec, the accepted names and the condition Established; its only metadata is the name. Columns that
	// exceed the limits are omitted, and schemas that exceed them are replaced by one that preserves all fields.
	CRD      *apiextensionsv1.CustomResourceDefinition
	readOnly bool
	// statusOnly definitions are readOnly except for the status of their objects.
	statusOnly bool
	sharing

	stored     *apiextensionsv1.CustomResourceDefinition // CRD including the parts that exceed the limits
	exceeds    error                                     // why the definition is not served
	shown      *apiextensionsv1.CustomResourceDefinition // for upstream's handler
	references int                                       // guarded by the registry
	system     bool
	compiled   func() (http.Handler, error)
	informer   *capturingInformer
	admitted   admitted
}

// sharing is the part of a definition that depends on its export; empty for other definitions.
type sharing struct {
	// Identity is that of the APIExport under which the objects are stored.
	Identity string
	// rules convert between the versions; nil without an APIConversion.
	rules *apisv1alpha1.APIConversionSpec
	// shownBy is the export that publishes objects of its provider; empty for resources whose objects are stored.
	shownBy informers.Key
}

// IsVirtual reports whether the objects belong to a provider and are read-only.
func (s sharing) IsVirtual() bool { return s.shownBy != informers.Key{} }

// CanBeWritten reports whether requests for a subresource, or for objects if it is empty, may use verbs other than get,
// list and watch.
func (d *Definition) CanBeWritten(subresource string) bool {
	return !d.readOnly && !d.IsVirtual() && (!d.statusOnly || subresource == "status")
}

// hashOf returns the hash of the parts of crd that affect its resources: the spec with the defaults of the API server,
// and the accepted names. Other parts of a definition do not affect the hash.
func hashOf(crd *apiextensionsv1.CustomResourceDefinition, shared sharing) (string, error) {
	content, err := json.Marshal(struct {
		Spec     *apiextensionsv1.CustomResourceDefinitionSpec
		Names    *apiextensionsv1.CustomResourceDefinitionNames
		Identity string
		Rules    *apisv1alpha1.APIConversionSpec
		ShownBy  informers.Key
	}{&crd.Spec, &crd.Status.AcceptedNames, shared.Identity, shared.rules, shared.shownBy})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// ResourceName returns the name under which the definition of a resource is stored: <resource>.<group>, with "core" for
// the empty group.
func ResourceName(resource, group string) string {
	return resource + "." + cmp.Or(group, "core")
}

// established are the conditions of all definitions, which never change. Their time is long ago, because upstream delays requests within
// two seconds after a definition is established.
var established = []apiextensionsv1.CustomResourceDefinitionCondition{
	{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Unix(0, 0)},
	{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Unix(0, 0)},
}

// newDefinition removes from crd everything that differs between clusters.
func newDefinition(hash string, shared sharing, crd *apiextensionsv1.CustomResourceDefinition,
	compile func(*Definition) (http.Handler, error)) *Definition {
	served := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: ResourceName(crd.Spec.Names.Plural, crd.Spec.Group), UID: types.UID(hash)},
		Spec:       crd.Spec,
	}
	served.Status.AcceptedNames, served.Status.Conditions = crd.Status.AcceptedNames, established
	d := &Definition{Hash: hash, sharing: shared, stored: served, informer: &capturingInformer{}}
	d.CRD, d.exceeds = within(served)
	d.shown = disguiseCore(d.CRD)
	d.compiled = sync.OnceValues(func() (http.Handler, error) {
		handler, err := compile(d)
		if err == nil {
			d.informer.completed(d.shown)
		}
		return handler, err
	})
	return d
}

// within returns the part of a definition that is within the limits, and the reason why it is not served.
func within(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	served, _ := limits.WithoutColumns(crd)
	errs := limits.Check(&served.Spec, false)
	if len(errs) == 0 {
		return served, nil
	}
	copied := *served
	copied.Spec.Versions = slices.Clone(served.Spec.Versions)
	for i := range copied.Spec.Versions {
		copied.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
		}
		copied.Spec.Versions[i].SelectableFields = nil
	}
	return &copied, errs.ToAggregate()
}

// Serves reports whether the definition serves a version.
func (d *Definition) Serves(version string) bool {
	return apiextensionshelpers.HasServedCRDVersion(d.CRD, version)
}

// Reaches reports whether the scope of the definition lets clients reach an object that is stored with a namespace, or without one if it
// is empty.
func (d *Definition) Reaches(namespace string) bool {
	return (namespace != "") == (d.CRD.Spec.Scope == apiextensionsv1.NamespaceScoped)
}

// VersionOf returns version, or the storage version if version is empty; empty if that version is not served.
func (d *Definition) VersionOf(version string) string {
	for _, v := range d.CRD.Spec.Versions {
		if v.Served && (v.Name == version || (version == "" && v.Storage)) {
			return v.Name
		}
	}
	return ""
}

// IsSystem reports whether the server itself provides the definition.
func (d *Definition) IsSystem() bool { return d.system }

// Key returns the resource and group, in the form of ResourceName.
func (d *Definition) Key() string { return d.CRD.Name }

// close stops the storage of a definition that no cluster uses any more.
func (d *Definition) close() { d.informer.removed(d.shown) }

// content identifies the memory that holds the versions of a definition: crds that share it are equal.
func content(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionVersion {
	if len(crd.Spec.Versions) == 0 {
		return nil
	}
	return &crd.Spec.Versions[0]
}
