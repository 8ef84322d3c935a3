package customresources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// DefinitionStorage returns the REST storage of CustomResourceDefinitions: upstream's, which also accepts the core group (empty,
// in definitions named <plural>.core) and groups without a dot, such as apps. Reserved are the resources that the server itself
// serves; they cannot be defined again. The first result, for clients, includes derived definitions; the second result does not.
func DefinitionStorage(
	getter generic.RESTOptionsGetter, reserved sets.Set[schema.GroupResource], source derived.Source,
) (map[string]rest.Storage, *customresourcedefinition.REST, error) {
	definitions, err := customresourcedefinition.NewREST(apiextensionsapiserver.Scheme, getter)
	if err != nil {
		return nil, nil, err
	}
	definitions.CreateStrategy = createStrategy{definitions.CreateStrategy, reserved}
	definitions.UpdateStrategy = updateStrategy{definitions.UpdateStrategy}
	shown := showDerived(definitions, source)
	return map[string]rest.Storage{
		"customresourcedefinitions": shown,
		"customresourcedefinitions/status": statusREST{customresourcedefinition.NewStatusREST(apiextensionsapiserver.Scheme,
			definitions), shown.Storage},
	}, definitions, nil
}

// ValidateDefinition returns the errors of a new definition. A definition that exceeds the limits is not validated further,
// because that can take long.
func ValidateDefinition(ctx context.Context, crd *apiextensions.CustomResourceDefinition) field.ErrorList {
	if errs := exceeded(crd); len(errs) > 0 {
		return errs
	}
	return reveal(crd, validation.ValidateCustomResourceDefinition(ctx, disguise(crd)))
}

type createStrategy struct {
	rest.RESTCreateStrategy
	reserved sets.Set[schema.GroupResource]
}

func (s createStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	crd := obj.(*apiextensions.CustomResourceDefinition)
	errs := ValidateDefinition(ctx, crd)
	if s.reserved.Has(schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "names", "plural"),
			fmt.Sprintf("%s is built in: the server serves it in every workspace; use another group or plural", crd.Name)))
	}
	return errs
}

// statusREST protects the parts of a definition's status that the server writes: the accepted names, and the conditions that control
// whether the definition is served and its instances are deleted. Other conditions, and the stored versions, belong to clients.
type statusREST struct {
	*customresourcedefinition.StatusREST
	shown *derived.Storage
}

// Get implements rest.Getter.
func (s statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.shown.Get(ctx, name, options)
}

// Update implements rest.Updater.
func (s statusREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc,
	force bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if err := s.shown.CheckWritable(ctx, name); err != nil {
		return nil, false, err
	}
	if !authorization.IsServer(ctx) {
		info = rest.WrapUpdatedObjectInfo(info, keepServersStatus)
	}
	return s.StatusREST.Update(ctx, name, info, create, update, force, options)
}

// serversConditions are those that the server itself writes.
var serversConditions = sets.New(apiextensions.Established, apiextensions.NamesAccepted, apiextensions.NonStructuralSchema,
	apiextensions.Terminating,
	apiextensions.KubernetesAPIApprovalPolicyConformant, WithinLimits)

// WithinLimits is the condition of stored definitions that exceed the limits of the server, because they were created before
// the limits existed: it is False, or absent.
const WithinLimits = "WithinLimits"

func keepServersStatus(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
	after, isDefinition := obj.(*apiextensions.CustomResourceDefinition)
	before, wasDefinition := old.(*apiextensions.CustomResourceDefinition)
	if !isDefinition || !wasDefinition {
		return obj, nil
	}
	isServers := func(c apiextensions.CustomResourceDefinitionCondition) bool { return serversConditions.Has(c.Type) }
	isClients := func(c apiextensions.CustomResourceDefinitionCondition) bool { return !isServers(c) }
	after.Status.AcceptedNames = before.Status.AcceptedNames
	after.Status.Conditions = append(slices.DeleteFunc(slices.Clone(before.Status.Conditions), isClients),
		slices.DeleteFunc(after.Status.Conditions, isServers)...)
	return after, nil
}

type updateStrategy struct{ rest.RESTUpdateStrategy }

func (s updateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	crd, before := obj.(*apiextensions.CustomResourceDefinition), old.(*apiextensions.CustomResourceDefinition)
	if errs := exceeded(crd); len(errs) > 0 {
		if !apiequality.Semantic.DeepEqual(crd.Spec, before.Spec) {
			return errs
		}
		// The definition was stored before the limits existed. Its metadata can change, so that it can be deleted.
		return reveal(crd, validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, crd, before))
	}
	return reveal(crd, s.RESTUpdateStrategy.ValidateUpdate(ctx, disguise(crd), disguise(before)))
}

// exceeded returns an error for each limit that a definition exceeds.
func exceeded(crd *apiextensions.CustomResourceDefinition) field.ErrorList {
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(crd, v1, nil); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return limits.Check(&v1.Spec, true)
}

// disguiseSuffix is appended to a group without a dot, which upstream would reject.
const disguiseSuffix = ".undotted"

// disguise returns crd in a form that upstream's validation accepts if it is otherwise valid: it adds a dot to a
// group without one.
func disguise(crd *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	if strings.Contains(crd.Spec.Group, ".") {
		return crd
	}
	disguised := crd.DeepCopy()
	group := crd.Spec.Group
	if group == "" {
		group = "core"
	} else if group == "core" {
		return crd // taken: definitions of the core group have this name
	}
	disguised.Spec.Group = group + disguiseSuffix
	disguised.Name = crd.Name + disguiseSuffix
	return disguised
}

// reveal replaces the names of a disguised definition in errors by the real ones.
func reveal(crd *apiextensions.CustomResourceDefinition, errs field.ErrorList) field.ErrorList {
	if strings.Contains(crd.Spec.Group, ".") {
		return errs
	}
	for _, err := range errs {
		err.Detail = strings.ReplaceAll(err.Detail, disguiseSuffix, "")
		if value, ok := err.BadValue.(string); ok {
			err.BadValue = strings.ReplaceAll(value, disguiseSuffix, "")
		}
		switch {
		case err.Field == "spec.group" && crd.Spec.Group == "":
			err.BadValue = ""
		case err.Field == "spec.group" && crd.Spec.Group == "core":
			err.Detail = `the core group is "", in a definition named <plural>.core`
		case err.Field == "metadata.name" && crd.Spec.Group == "":
			err.Detail = strings.ReplaceAll(err.Detail, `"."+spec.group`, `".core", because the group is empty`)
		}
	}
	return errs
}
