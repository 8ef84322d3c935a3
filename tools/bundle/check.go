package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// validators are the validators of operator-sdk bundle validate with the suite operatorframework.
var validators = validator.Validators{
	validation.ClusterServiceVersionValidator, validation.CustomResourceDefinitionValidator, validation.BundleValidator,
	validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
	validation.ObjectValidator, validation.GoodPracticesValidator,
}

// removedFromRules matches the warning about rules for kinds of which Kubernetes has removed one version. A rule covers all versions.
var removedFromRules = regexp.MustCompile(`Migrate the API\(s\) for ((events|horizontalpodautoscalers): ` +
	`\(\[("ClusterServiceVersion\.Spec\.InstallStrategy\.StrategySpec\.(Cluster)?Permissions\[\d+\]\.Rules\[\d+\]",?)+\]\),)+$`)

// check returns the findings of the Operator Framework about a bundle, including warnings, and violations of the rules of catalogs.
func check(dir string, released bool) error {
	bundle, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return err
	}
	var found []error
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, e := range append(result.Errors, result.Warnings...) {
			if !removedFromRules.MatchString(e.Error()) {
				found = append(found, e)
			}
		}
	}
	found = append(found, checkLayout(dir, bundle), checkNames(bundle.CSV), checkImages(bundle.CSV, released))
	strategy := bundle.CSV.Spec.InstallStrategy.StrategySpec
	for _, p := range append(strategy.Permissions, strategy.ClusterPermissions...) {
		found = append(found, checkRules(p.Rules))
	}
	for _, d := range strategy.DeploymentSpecs {
		found = append(found, checkPod(&d.Spec.Template.Spec))
	}
	return errors.Join(found...)
}

// checkLayout checks that the annotations have the paths of the bundle, and that each kind has a file.
func checkLayout(dir string, bundle *manifests.Bundle) error {
	text, err := os.ReadFile(filepath.Join(dir, "metadata/annotations.yaml"))
	if err != nil {
		return err
	}
	var file struct{ Annotations map[string]string }
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return err
	}
	of := func(name string) string { return file.Annotations["operators.operatorframework.io.bundle."+name+".v1"] }
	var found []error
	if of("mediatype") != "registry+v1" {
		found = append(found, fmt.Errorf("the mediatype of the bundle is %q", of("mediatype")))
	}
	for _, part := range []string{"manifests", "metadata"} {
		if info, err := os.Stat(filepath.Join(dir, of(part))); err != nil || !info.IsDir() || of(part) != part+"/" {
			found = append(found, fmt.Errorf("the annotation of %s has the path %q", part, of(part)))
		}
	}
	if !slices.Contains(strings.Split(of("channels"), ","), of("channel.default")) {
		found = append(found, fmt.Errorf("the default channel %q is not one of %q", of("channel.default"), of("channels")))
	}
	if version, ok := strings.CutPrefix(bundle.CSV.Name, of("package")+".v"); !ok || version != bundle.CSV.Spec.Version.String() {
		found = append(
			found,
			fmt.Errorf("name %s does not match package %s and version %s", bundle.CSV.Name, of("package"), bundle.CSV.Spec.Version),
		)
	}
	return errors.Join(found...)
}

// checkNames checks that all displayed information exists, and that the operator supports every install mode.
func checkNames(csv *v1alpha1.ClusterServiceVersion) error {
	var found []error
	supported := map[v1alpha1.InstallModeType]bool{}
	for _, mode := range csv.Spec.InstallModes {
		supported[mode.Type] = mode.Supported
	}
	for _, mode := range []v1alpha1.InstallModeType{v1alpha1.InstallModeTypeOwnNamespace, v1alpha1.InstallModeTypeSingleNamespace,
		v1alpha1.InstallModeTypeMultiNamespace, v1alpha1.InstallModeTypeAllNamespaces} {
		if !supported[mode] {
			found = append(found, fmt.Errorf("the install mode %s is not supported", mode))
		}
	}
	for _, owned := range csv.Spec.CustomResourceDefinitions.Owned {
		if owned.DisplayName == "" || owned.Description == "" || len(owned.Resources) == 0 || len(owned.SpecDescriptors) == 0 ||
			len(owned.StatusDescriptors) == 0 {
			found = append(found, fmt.Errorf("%s requires a name, a description, resources and described fields", owned.Kind))
		}
	}
	return errors.Join(found...)
}

var (
	tagged = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	pinned = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}$`)
)

// checkImages checks that all images can be mirrored, and that a release has the digest of each.
func checkImages(csv *v1alpha1.ClusterServiceVersion, released bool) error {
	var found []error
	related := map[string]bool{}
	for _, image := range csv.Spec.RelatedImages {
		related[image.Image] = true
		if form := map[bool]*regexp.Regexp{false: tagged, true: pinned}[released]; !form.MatchString(image.Image) {
			found = append(found, fmt.Errorf("relatedImages: image %s has the reference %q", image.Name, image.Image))
		}
	}
	for _, deployment := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			images := []string{container.Image}
			for _, arg := range container.Args {
				if image, ok := strings.CutPrefix(arg, imageFlag); ok {
					images = append(images, image)
				}
			}
			for _, image := range images {
				if !related[image] {
					found = append(found, fmt.Errorf("relatedImages does not list %s", image))
				}
			}
		}
	}
	return errors.Join(found...)
}

func checkRules(rules []rbacv1.PolicyRule) error {
	var found []error
	for _, rule := range rules {
		for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
			if word == "*" || word == "escalate" || word == "impersonate" {
				found = append(found, fmt.Errorf("a rule contains %q: %v", word, rule))
			}
		}
	}
	return errors.Join(found...)
}

// checkPod checks that a pod is restricted, as defined by the Pod Security Standards.
func checkPod(pod *corev1.PodSpec) error {
	var found []error
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		found = append(found, errors.New("the pod shares namespaces with its node"))
	}
	if c := pod.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil ||
		c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		found = append(found, errors.New("the pod can run as root, or has no seccomp profile"))
	}
	if c := pod.SecurityContext; c != nil && (c.RunAsUser != nil || c.FSGroup != nil) {
		found = append(found, errors.New("the pod sets a user: OpenShift allows different users in each namespace, and the image has a user"))
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			found = append(found, fmt.Errorf("volume %s is a directory of the node", volume.Name))
		}
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		c := container.SecurityContext
		if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Privileged != nil && *c.Privileged ||
			c.Capabilities == nil || !slices.Contains(c.Capabilities.Drop, "ALL") || len(c.Capabilities.Add) > 0 {
			found = append(found, fmt.Errorf("container %s has privileges", container.Name))
		}
	}
	return errors.Join(found...)
}
