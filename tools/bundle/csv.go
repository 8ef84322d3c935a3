package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// imageFlag is the flag of the operator with the image of kcp.
const imageFlag = "--kcp-image="

// operator returns the container of the operator.
func (s *source) operator() *corev1.Container { return &s.deployment.Spec.Template.Spec.Containers[0] }

// clusterServiceVersion returns the manifest that the Operator Lifecycle Manager installs.
func (s *source) clusterServiceVersion() (*v1alpha1.ClusterServiceVersion, error) {
	csv := s.base.DeepCopy()
	container := s.operator()
	csv.Spec.RelatedImages = append(csv.Spec.RelatedImages, v1alpha1.RelatedImage{Name: packageName, Image: container.Image})
	for _, arg := range container.Args {
		if image, ok := strings.CutPrefix(arg, imageFlag); ok {
			csv.Spec.RelatedImages = append(csv.Spec.RelatedImages, v1alpha1.RelatedImage{Name: "kcp", Image: image})
		}
	}
	var err error
	if csv.Spec.Version.Version, err = semver.Parse(s.version); err != nil {
		return nil, err
	}
	examples, err := json.MarshalIndent(s.samples, "", "  ")
	if err != nil {
		return nil, err
	}
	csv.Name, csv.Namespace = packageName+".v"+s.version, "placeholder"
	csv.Annotations["alm-examples"] = string(examples)
	csv.Annotations["containerImage"] = container.Image
	csv.Annotations[v1alpha1.SkipRangeAnnotationKey] = "<" + s.version
	csv.Labels = map[string]string{
		"operatorframework.io/arch.amd64": "supported",
		"operatorframework.io/arch.arm64": "supported",
		"operatorframework.io/os.linux":   "supported",
	}
	csv.Spec.Icon = []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(s.icon), MediaType: "image/svg+xml"}}
	csv.Spec.InstallStrategy = s.install()
	csv.Spec.CustomResourceDefinitions.Owned, err = s.owned()
	return csv, err
}

// install returns the Deployment of the operator, and its permissions.
func (s *source) install() v1alpha1.NamedInstallStrategy {
	spec := *s.deployment.Spec.DeepCopy()
	container := &spec.Template.Spec.Containers[0]
	// In this annotation of the pod, the Operator Lifecycle Manager lists the selected namespaces. If it is empty, all are selected.
	container.Env = slices.DeleteFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "WATCH_NAMESPACE" })
	container.Env = append(container.Env, corev1.EnvVar{Name: "WATCH_NAMESPACE", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['olm.targetNamespaces']"},
	}})
	var everywhere, selected []rbacv1.PolicyRule
	for _, rule := range s.rules {
		if clusterScoped(rule) {
			everywhere = append(everywhere, rule)
		} else {
			selected = append(selected, rule)
		}
	}
	account := spec.Template.Spec.ServiceAccountName
	return v1alpha1.NamedInstallStrategy{
		StrategyName: v1alpha1.InstallStrategyNameDeployment,
		StrategySpec: v1alpha1.StrategyDetailsDeployment{
			DeploymentSpecs: []v1alpha1.StrategyDeploymentSpec{{Name: s.deployment.Name, Label: s.deployment.Labels, Spec: spec}},
			// The Operator Lifecycle Manager grants these in the selected namespaces, or in all.
			Permissions:        []v1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: account, Rules: append(selected, s.leaderRules...)}},
			ClusterPermissions: []v1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: account, Rules: everywhere}},
		},
	}
}

// clusterScoped reports whether a rule is about cluster-scoped resources. A rule must not mix these with namespaced ones.
func clusterScoped(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rule.Resources, func(resource string) bool {
		return slices.Contains([]string{"clusterissuers", "subjectaccessreviews", "tokenreviews"}, resource)
	})
}

// marshal returns the manifest without fields that only a server sets.
func marshal(csv *v1alpha1.ClusterServiceVersion) ([]byte, error) {
	text, err := json.Marshal(csv)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	prune(object)
	return yaml.Marshal(object)
}

// prune removes timestamps that are not set.
func prune(object map[string]any) {
	for key, value := range object {
		if below, ok := value.(map[string]any); ok {
			prune(below)
		}
		if key == "creationTimestamp" && value == nil {
			delete(object, key)
		}
	}
}

// owned returns the descriptions of the kinds.
func (s *source) owned() ([]v1alpha1.CRDDescription, error) {
	described := map[string]v1alpha1.CRDDescription{}
	for _, d := range s.base.Spec.CustomResourceDefinitions.Owned {
		described[d.Kind] = d
	}
	var all []v1alpha1.CRDDescription
	for i := range s.definitions {
		definition := &s.definitions[i]
		kind := definition.Spec.Names.Kind
		d, ok := described[kind]
		if !ok {
			return nil, fmt.Errorf("olm/csv.yaml has no resources for kind %s", kind)
		}
		delete(described, kind)
		all = append(all, describe(d, definition))
	}
	for kind := range described {
		return nil, fmt.Errorf("olm/csv.yaml describes kind %s, which has no definition", kind)
	}
	return all, nil
}
