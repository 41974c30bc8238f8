# The everyday commands; CMakeLists.txt is the build itself.
BUILD ?= build
JOBS ?= $(shell nproc)
DATA ?= $(firstword $(wildcard examples/data/digits) examples/data)

.PHONY: demo test bench format clean deps configure

# Trains a small ResNet on handwritten digits, eagerly and compiled, and compares the two.
demo: configure
	@cmake --build $(BUILD) -j $(JOBS) --target resnet_train
	$(BUILD)/examples/resnet_train --mode=compare --data $(DATA)

test: configure
	@cmake --build $(BUILD) -j $(JOBS) --target etch_tests etch_examples
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure --no-tests=error

# Builds all benches (and the LibTorch one where LibTorch is installed), then runs the micro-benchmarks.
bench: configure
	@cmake --build $(BUILD) -j $(JOBS) --target etch_benches
	@for bench in $(BUILD)/bench/*_bench; do echo "== $$bench"; $$bench || exit 1; done

format:
	git ls-files -z '*.h' '*.cpp' | xargs -0 -r $(or $(shell command -v clang-format-14),clang-format) -i

clean:
	rm -rf $(BUILD)

deps:
	@cmake/install_deps.sh

configure: deps
	@test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja
