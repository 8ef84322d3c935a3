package apibinding

import (
	"maps"
	"strings"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// annotationsOf returns the annotations that a binding must have: its own, and those that its export passes on to all bindings. While the
// export is not found they do not change.
func (r *reconciler) annotationsOf(binding *apisv1alpha2.APIBinding) map[string]string {
	if binding.Spec.Reference.Export == nil {
		return binding.Annotations
	}
	export, err := r.Exports.Find(logicalcluster.Of(binding), *binding.Spec.Reference.Export)
	if err != nil || replaced(&binding.Status, logicalcluster.Of(export)) {
		return binding.Annotations
	}
	return passedOn(binding.Annotations, export.Annotations)
}

// passedOn returns own annotations without any that exports pass on, plus those that this export passes on.
func passedOn(own, export map[string]string) map[string]string {
	passes := func(key string) bool { return strings.HasPrefix(key, apisv1alpha2.ExtraAnnotationPrefix) }
	wanted := maps.Clone(own)
	maps.DeleteFunc(wanted, func(key, _ string) bool { return passes(key) })
	for key, value := range export {
		if passes(key) {
			if wanted == nil {
				wanted = map[string]string{}
			}
			wanted[key] = value
		}
	}
	return wanted
}
